"""Checks that the originals of the parts, joined as the recipe says, give what the original of the
whole gives; if not, finds the change to the parts' weights or to the recipe's `join` that makes
them agree.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import Call, CaseRecord, TensorMetrics
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.job_context import Context
from convkit.worker.join.call_trace import write_call
from convkit.worker.join.joined_original import JoinedOriginal
from convkit.worker.join.other_wirings import WiringChange, changes, other_feeds
from convkit.worker.join.part_flow import Wiring
from convkit.worker.join.part_state import StateDifference, differences, exchanged
from convkit.worker.join.value_conventions import other_activations, other_conventions, other_scales
from convkit.worker.metrics.row_sets import compare_outputs
from convkit.worker.reference.original_model import OriginalModel, TorchOriginal
from convkit.worker.runtime_interface.sessions import RunFailedError
from convkit.worker.steps.call_agreement import share

if TYPE_CHECKING:
    from convkit.worker.cause.weights.traced_weights import WeightDifference
    from convkit.worker.join.file_weights import FileWeights

# The relative difference (RMS over RMS) from which two runs of the original count as different:
# sums in a different order stay far below it.
_NOISE = 1e-3
_HALF_NOISE = 0.05
# A change must leave less than this share of the difference, in every case that differs.
_LEFT = 0.01
# Enough for every pair of inputs in a model of a dozen parts; each trial is one run of the whole.
_MOST_TRIALS = 400
# If more tensors differ, the weights are others altogether: none is tried alone.
_MOST_TENSORS = 16


def agreement(
    joined: JoinedOriginal,
    whole: OriginalModel | None,
    cases: Sequence[CaseRecord],
    context: Context,
    *,
    half: bool,
) -> list[Finding]:
    """Run the joined originals on every case, write what each call returned, and compare.

    `whole` is the original that the cases' outputs come from; None if they come from the joined
    originals themselves. Findings: C517 if the original's weights or constants remove the
    difference, C511 to C516, C518 and C578 if a change of the join does, C510 if nothing does.
    """
    limit = _HALF_NOISE if half else _NOISE
    off: list[_Case] = []
    for record in cases:
        context.progress(f"the joined originals: {record.name}")
        case = _Case.read(record.name, joined.wiring.contract, context.output)
        values = dict(case.feeds)

        def note(call: Call, number: int, outputs: Feeds, values: Feeds = values) -> None:
            values.update({f"{call.name}.{name}": array for name, array in outputs.items()})
            write_call(context.output, record.name, call, number, outputs)  # noqa: B023 - runs now

        try:
            found = joined.recorded(dict(case.feeds), note)
        except RunFailedError as error:
            return [_refused(record.name, str(error))]
        worst = max(case.measured(found), key=_share)
        if whole is not None and not _share(worst) <= limit:
            off.append(dataclasses.replace(case, values=values, worst=worst))
    return [_explained(joined, whole, off, limit, context)] if off else []


@dataclasses.dataclass(frozen=True)
class _Case:
    """One case: its inputs, the original's outputs, and the values in the joined run."""

    name: str
    contract: Contract
    feeds: Feeds
    expected: Feeds
    values: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    worst: TensorMetrics | None = None

    @staticmethod
    def read(name: str, contract: Contract, reference: Path) -> "_Case":
        return _Case(
            name,
            contract,
            dict(read_tensors(reference, name, "inputs", contract.inputs)),
            dict(read_tensors(reference, name, "outputs", contract.outputs)),
        )

    def measured(self, found: Feeds) -> Sequence[TensorMetrics]:
        """Measure the outputs, without what is NaN in both runs: N103 reports it."""
        expected, given = dict(self.expected), dict(found)
        for name, wanted in self.expected.items():
            other = given.get(name)
            if wanted.dtype.kind != "f" or other is None or other.shape != wanted.shape:
                continue
            both = np.isnan(wanted) & np.isnan(other)
            if both.any():
                expected[name] = np.where(both, wanted.dtype.type(0), wanted)
                given[name] = np.where(both, other.dtype.type(0), other)
        return compare_outputs(self.contract, expected, given)

    def error(self, found: Feeds) -> float:
        return max(map(_share, self.measured(found)))


def _share(metrics: TensorMetrics) -> float:
    """Return an output's error relative to the reference. A row of a set that only one run returns
    counts as far off, unless it is next to the threshold.
    """
    unmatched = metrics.rows.unmatched if metrics.rows is not None else ()
    if not all(row.margin <= _NOISE for row in unmatched):
        return float("inf")
    return share(metrics)


def _explained(
    joined: JoinedOriginal,
    whole: OriginalModel | None,
    off: Sequence[_Case],
    limit: float,
    context: Context,
) -> Finding:
    """Return why the originals differ: the change that makes them agree in every case."""
    context.progress("looking for what is wrong in the join")
    first = off[0]
    assert first.worst is not None
    allowed = max(limit, _LEFT * min(_share(first.worst), 1.0))
    if isinstance(whole, TorchOriginal):
        found = differences(joined.modules, whole.module)
        if (state := _other_state(joined, found, (first, off[-1]), allowed)) is not None:
            return state
        if (file := _other_file(joined, whole, (first, off[-1]), allowed)) is not None:
            return file
    for change in itertools.islice(_trials(joined.wiring, first, off[-1]), _MOST_TRIALS):
        if all(_error(joined, change, case) <= allowed for case in (first, off[-1])):
            return _cause(change, first, _error(joined, change, first))
    behind = ""
    if isinstance(whole, TorchOriginal):
        from convkit.worker.join.departure_from_whole import (
            Departure,
            behind_text,
            departure_finding,
            first_departure,
        )

        context.progress("comparing the parts' modules with the original's")
        departure = first_departure(joined, whole, (first, off[-1]), limit, allowed)
        if isinstance(departure, Departure):
            before, output = _share(first.worst), first.worst.output
            return departure_finding(departure, _difference(first), before, output, first.name)
        behind = behind_text(departure) if departure is not None else ""
    return Finding(
        "C510",
        f"the joined parts differ from the original in case {first.name!r}: {_difference(first)};"
        f" no other wiring of the parts that was tried makes them agree{behind}",
        Place(tensor=first.worst.output, case=first.name),
        {"error": _share(first.worst)},
        Remedy("Compare `join` and the parts' own code with how the original calls its parts."),
    )


def _other_state(
    joined: JoinedOriginal, found: Sequence[StateDifference], cases: Sequence[_Case], allowed: float
) -> Finding | None:
    """Return C517 if the originals agree once the parts have the tensors of the whole."""

    def error(exchange: Sequence[StateDifference]) -> float:
        with exchanged(exchange):
            return max(_error(joined, _nothing(joined.wiring), case) for case in cases)

    if not found or not error(found) <= allowed:
        return None
    alone = found if len(found) <= _MOST_TENSORS else ()
    needed = next(([each] for each in alone if error([each]) <= allowed), found)
    tensors = [_Wrong(each.part, each.own.path, each.original.path, each.where) for each in needed]
    return _wrong_values(tensors, cases[0], error(needed))


def _other_file(
    joined: JoinedOriginal, whole: TorchOriginal, cases: Sequence[_Case], allowed: float
) -> Finding | None:
    """Return C517 if the originals agree once a part's ONNX file has the weights of the whole."""
    from convkit.worker.join.file_weights import file_weights

    for file in file_weights(joined.files, whole.module):

        def error(differences: "Sequence[WeightDifference]", file: "FileWeights" = file) -> float:
            with joined.with_part_replaced(file.part, file.corrected(tuple(differences))):
                return max(_error(joined, _nothing(joined.wiring), case) for case in cases)

        found = file.differences
        if not error(found) <= allowed:
            continue
        alone = found if len(found) <= _MOST_TENSORS else ()
        needed = next(([each] for each in alone if error([each]) <= allowed), found)
        tensors = [
            _Wrong(file.part, each.weight, each.original, each.likeness.text) for each in needed
        ]
        return _wrong_values(tensors, cases[0], error(needed))
    return None


@dataclasses.dataclass(frozen=True)
class _Wrong:
    """A part's tensor with other values than the original's: `where` or how they differ."""

    part: str
    own: str
    original: str
    where: str


def _wrong_values(tensors: Sequence[_Wrong], case: _Case, after: float) -> Finding:
    assert case.worst is not None
    first, *others = tensors
    message = (
        f"{first.own!r} of part {first.part!r} has different values from {first.original!r} of the"
        f" original: {first.where}"
    )
    if others:
        message += f"; so do {len(others)} more weights or constants"
    return Finding(
        "C517",
        f"{message}. {_difference(case)} in case {case.name!r}; with the original's values, the"
        " joined parts agree with it",
        Place(tensor=case.worst.output, module=first.own, case=case.name),
        {
            "proven": True,
            "before": _share(case.worst),
            "after": after,
            "part": first.part,
            "tensors": [each.own for each in tensors],
        },
        Remedy(f"Load or compute {first.own} of part {first.part!r} as the original does."),
    )


def _nothing(wiring: Wiring) -> WiringChange:
    return WiringChange("", wiring.flow, "", "")


def _trials(wiring: Wiring, case: _Case, last: _Case) -> Iterator[WiringChange]:
    shapes = {name: (array.shape, array.dtype.str) for name, array in case.values.items()}
    yield from changes(wiring, shapes)
    yield from other_conventions(wiring, shapes)
    yield from other_feeds(wiring, shapes)
    yield from other_scales(wiring, last.values, last.expected)  # has the most values
    yield from other_activations(wiring, case.values)


def _error(joined: JoinedOriginal, change: WiringChange, case: _Case) -> float:
    wiring = dataclasses.replace(joined.wiring, flow=change.flow)

    def corrected(values: Feeds, prefix: str = "") -> Feeds:
        return {
            name: change.correction(array) if prefix + name in change.corrected else array
            for name, array in values.items()
        }

    def run(call: Call, number: int, feeds: Feeds) -> Feeds:
        if call.name == change.skipped:
            taken, returned = change.passed_on
            return {returned: feeds[taken]}
        return corrected(joined.call(call, number, feeds), f"{call.name}.")

    try:
        return case.error(wiring.run(corrected(case.feeds), run))
    except (RunFailedError, KeyError, ValueError):  # values that only exist in another order
        return float("inf")


def _cause(change: WiringChange, case: _Case, after: float) -> Finding:
    assert case.worst is not None
    return Finding(
        change.code,
        f"{change.text}: {_difference(case)} in case {case.name!r}; with this corrected, the joined"
        " parts agree with the original",
        Place(tensor=case.worst.output, case=case.name),
        {"proven": True, "before": _share(case.worst), "after": after, "change": change.remedy},
        Remedy(change.remedy),
    )


def _difference(case: _Case) -> str:
    assert case.worst is not None
    if case.worst.mismatch is not None:
        return f"{case.worst.output!r}: {case.worst.mismatch}"
    if case.worst.rows is not None and not case.worst.rows.is_complete:
        rows = case.worst.rows
        return (
            f"{case.worst.output!r}: {rows.matched} rows match, of {rows.reference} in the original"
            f" and {rows.candidate} in the joined parts"
        )
    return f"{case.worst.output!r} differs by {_share(case.worst):.2g} of its magnitude"


def _refused(case: str, why: str) -> Finding:
    return Finding(
        "C510",
        f"the joined parts cannot run case {case!r}, which the original accepts: {why}",
        Place(case=case),
        remedy=Remedy("Check the shapes that `join` passes from part to part."),
    )
