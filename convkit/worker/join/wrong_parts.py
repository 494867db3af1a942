"""Which built parts make the joined outputs wrong: with the original's outputs in place of those
parts', every output must be within its limits.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import Call, CaseMetrics, TensorMetrics
from convkit.protocol.metrics.limits import overshoot, problems
from convkit.worker.cases.case import Feeds
from convkit.worker.join.call_trace import read_call
from convkit.worker.join.joined_session import JoinedSession
from convkit.worker.join.part_flow import calls_of
from convkit.worker.metrics.row_sets import compare_outputs
from convkit.worker.runtime_interface.sessions import RunFailedError
from convkit.worker.steps.call_agreement import share
from convkit.worker.verification.built_model import BuiltModel

Limits = Mapping[str, dict[str, float]]

# The relative difference (RMS over RMS) that the comparison of the joined originals always reports.
_FAR = 0.05


def parts_at_fault(
    session: JoinedSession,
    limits: Limits,
    cases: Sequence[CaseMetrics],
    reference: Path,
    verification: BuiltModel,
) -> Finding | None:
    """Return what makes the first wrong case wrong; None if no case is.

    C514 names the part whose replacement by the original fixes it, or, if none alone does, the
    parts that do together. C510: even the originals of all parts miss the limits, though not by as
    much as a join that is wrong.
    """
    off = next(
        (case for case in cases if case.outputs and not _is_right(case.outputs, limits)), None
    )
    if off is None:
        return None
    trial = _Replacement(session, limits, reference, off.case, verification)
    names = list(dict.fromkeys(call.part for call in calls_of(session.wiring.flow)))
    for name in names:
        if trial.is_fixed_by_originals({name}):
            alone = not trial.is_fixed_by_originals(set(names) - {name})
            return _one_part(name, off.case, is_wrong_alone=alone)
    if not trial.is_fixed_by_originals(set(names)):
        # A join that is far off is reported, with its cause, where the originals are joined.
        return None if trial.is_far_off(set(names)) else _no_part(off.case)
    left = {name: trial.overshoot({name}) for name in names}
    together = set(names)
    for name in sorted(names, key=lambda name: left[name], reverse=True):
        if trial.is_fixed_by_originals(together - {name}):  # what helps least is left out first
            together.remove(name)
    return _several_parts(sorted(together, key=lambda name: left[name]), left, off.case)


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
        self._known: dict[frozenset[str], Sequence[TensorMetrics]] = {}

    def is_fixed_by_originals(self, parts: set[str]) -> bool:
        """Say whether every output is within its limits if the original replaces `parts`."""
        measured = self._measured(frozenset(parts))
        return bool(measured) and _is_right(measured, self._limits)

    def is_far_off(self, parts: set[str]) -> bool:
        """Say whether an output differs by more than rounding, with the originals of `parts`."""
        measured = self._measured(frozenset(parts))
        return not all(share(each) <= _FAR for each in measured)

    def overshoot(self, parts: set[str]) -> float:
        """Return the factor by which the errors must still shrink; infinity if there is none."""
        measured = self._measured(frozenset(parts))
        factors = (overshoot(each, self._limits[each.output]) for each in measured)
        return max(factors, default=math.inf)

    def _measured(self, parts: frozenset[str]) -> Sequence[TensorMetrics]:
        """Return how the outputs differ with the originals of `parts`; nothing if the run fails."""
        if parts not in self._known:
            self._known[parts] = self._run(parts)
        return self._known[parts]

    def _run(self, parts: frozenset[str]) -> Sequence[TensorMetrics]:
        wiring = self._session.wiring

        def run(call: Call, number: int, feeds: Feeds) -> Feeds:
            if call.part in parts:
                contract = wiring.parts[call.part]
                return read_call(self._reference, self._case, call, number, contract)
            return self._session.call(call, number, feeds)

        try:
            found = wiring.run(dict(self._verification.feeds(self._case)), run)
        except RunFailedError:
            return ()
        expected = self._verification.expected(self._case)
        return compare_outputs(wiring.contract, expected, found, lambda _: None)


def _is_right(measured: Sequence[TensorMetrics], limits: Limits) -> bool:
    return not any(problems(each, limits[each.output]) for each in measured)


def _one_part(part: str, case: str, *, is_wrong_alone: bool) -> Finding:
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


def _several_parts(parts: Sequence[str], left: Mapping[str, float], case: str) -> Finding:
    """`parts`: the one whose replacement helps most comes first."""
    *others, last = map(repr, parts)
    listed = f"{', '.join(others)} and {last}"
    return Finding(
        "C514",
        f"parts {listed} make the difference together in case {case!r}: with the originals in place"
        f" of all of them, every output is within its tolerance, but not with one alone;"
        f" {parts[0]!r} contributes most",
        Place(case=case),
        {"parts": list(parts), "proven": True, "left": {name: left[name] for name in parts}},
        Remedy(
            f"Give part {parts[0]!r} a higher precision for this target, then the next one. If"
            " the joined outputs are good enough for the task, judge them with `evaluate`, or set"
            " the whole's tolerance to what you accept."
        ),
    )


def _no_part(case: str) -> Finding:
    return Finding(
        "C510",
        f"no built part makes the difference in case {case!r}: the parts' originals, joined, miss"
        " the tolerance of the whole, too",
        Place(case=case),
        remedy=Remedy(
            "Compare the parts' code with the original's. If they compute the same in a different"
            " order, the tolerance of the whole must allow for that rounding."
        ),
    )
