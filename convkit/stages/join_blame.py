"""Which built part makes the joined outputs wrong: with the original's outputs in place of that
part's, every output must be within its limits.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from convkit.cases.case import Feeds
from convkit.findings.model import Finding, Place, Remedy
from convkit.joined.flow import calls_of
from convkit.joined.session import JoinedSession
from convkit.joined.trace import read_call
from convkit.metrics.limits import problems
from convkit.metrics.row_sets import compare_outputs
from convkit.stages.built_model import BuiltModel
from convkit.worker.protocol import Call, CaseMetrics, TensorMetrics
from convkit.worker.sessions import RunFailedError

Limits = Mapping[str, dict[str, float]]


def part_at_fault(
    session: JoinedSession,
    limits: Limits,
    cases: Sequence[CaseMetrics],
    reference: Path,
    verification: BuiltModel,
) -> Finding | None:
    """Return C514 for the part whose replacement by the original mends the first wrong case; None
    if nothing is wrong, or if no part alone makes it so.
    """
    off = next(
        (case for case in cases if case.outputs and not _is_right(case.outputs, limits)), None
    )
    if off is None:
        return None
    trial = _Replacement(session, limits, reference, off.case, verification)
    for name in dict.fromkeys(call.part for call in calls_of(session.wiring.flow)):
        if trial.mends({name}):
            alone = not trial.mends(set(session.wiring.parts) - {name})
            return _finding(name, off.case, is_wrong_alone=alone)
    return None


class _Replacement:
    """One case, run with the original's outputs in place of some parts'."""

    def __init__(
        self,
        session: JoinedSession,
        limits: Limits,
        reference: Path,
        case: str,
        verification: BuiltModel,
    ) -> None:
        self._session = session
        self._limits = limits
        self._reference = reference
        self._case = case
        self._verification = verification

    def mends(self, parts: set[str]) -> bool:
        """Say whether every output is within its limits if the original stands in for `parts`."""
        wiring = self._session.wiring

        def run(call: Call, number: int, feeds: Feeds) -> Feeds:
            if call.part in parts:
                contract = wiring.parts[call.part]
                return read_call(self._reference, self._case, call, number, contract)
            return self._session.call(call, number, feeds)

        try:
            found = wiring.run(dict(self._verification.feeds(self._case)), run)
        except RunFailedError:
            return False
        expected = self._verification.expected(self._case)
        measured = compare_outputs(wiring.contract, expected, found, lambda _: None)
        return _is_right(measured, self._limits)


def _is_right(measured: Sequence[TensorMetrics], limits: Limits) -> bool:
    return not any(problems(each, limits[each.output]) for each in measured)


def _finding(part: str, case: str, *, is_wrong_alone: bool) -> Finding:
    how = (
        "it is wrong even on the original's values"
        if is_wrong_alone
        else "it is right on the original's values, but not on what the parts before it produce"
    )
    return Finding(
        "C514",
        f"part {part!r} makes the difference in case {case!r}: with the original in its place,"
        f" every output is within its tolerance; {how}",
        Place(case=case),
        {"part": part, "proven": True, "wrong_alone": is_wrong_alone},
        Remedy(f"Correct part {part!r}: see its own verification, or give it a higher precision."),
    )
