"""Compares outputs whose number of rows depends on the inputs' values: as sets.

The rows of both models are matched first. What remains is a row that only one of them returns; it
is measured by how far its score is from what the other model keeps.
"""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from convkit.protocol.contract import Contract, DataAxis, TensorSpec
from convkit.protocol.messages import RowMetrics, TensorMetrics, UnmatchedRow
from convkit.worker.metrics.row_matching import match_rows
from convkit.worker.metrics.score_steps import Steps, find_steps
from convkit.worker.metrics.scored_labels import scored_share
from convkit.worker.metrics.tensor_metrics import as_float64, compare, largest_difference

Tensors = Mapping[str, np.ndarray]

# Rows without a counterpart that a record lists.
_MOST_LISTED = 10
# Fewer scores than this are in descending order by chance.
_FEWEST_ORDERED = 3


def _unpadded(output: str) -> np.ndarray | None:  # noqa: ARG001 - the signature of a padding function
    return None


def compare_outputs(
    contract: Contract,
    reference: Tensors,
    candidate: Tensors,
    padding: Callable[[str], np.ndarray | None] = _unpadded,
    *,
    nan_agrees: bool = False,
    steps: Mapping[str, Steps] | None = None,
) -> tuple[TensorMetrics, ...]:
    """Return how each of the original's outputs differs in the candidate, which may lack some.

    `padding` returns the positions at which an output is meaningless (see `compare`). Outputs along
    a data axis are compared on the rows that both models return; `TensorMetrics.rows` has the rest.
    An empty set has no error. With `nan_agrees`, NaN on both sides agrees, but not in sets. `steps`
    are the labels that are steps of a score, as far as more than this case shows it.
    """
    sets = _sets(contract, reference, candidate)

    def measured(name: str) -> TensorMetrics:
        if name in sets:
            return sets[name].metrics(name)
        hidden = padding(name)
        found = compare(name, reference[name], candidate[name], hidden, nan_agrees=nan_agrees)
        if found.mismatch is not None or not found.agreement < 1:
            return found
        known = find_steps([reference]) if steps is None else steps
        scored = scored_share(name, reference, candidate, hidden, known.get(name))
        return dataclasses.replace(found, scored=scored)

    return tuple(measured(name) for name in reference if name in candidate)


def largest_output_difference(contract: Contract, reference: Tensors, candidate: Tensors) -> float:
    """Return `largest_difference`, with the rows of sets in one order."""
    return largest_difference(*align_rows(contract, reference, candidate))


def align_rows(
    contract: Contract, reference: Tensors, candidate: Tensors
) -> tuple[Tensors, Tensors]:
    """Return both models' outputs with the rows of sets in one order, except for sets in which a
    row has no counterpart.
    """
    sets = _sets(contract, reference, candidate)
    pairs = {name: each.pair(name) for name, each in sets.items() if each.is_complete}
    first, second = (
        {**tensors, **{name: pair[side] for name, pair in pairs.items()}}
        for side, tensors in enumerate((reference, candidate))
    )
    return first, second


def _sets(contract: Contract, reference: Tensors, candidate: Tensors) -> dict[str, "_RowSet"]:
    """Return the matched set of each output along a data axis. Outputs that are missing, or whose
    shapes fit no set, have none: comparing them tells what is wrong.
    """
    found: dict[str, _RowSet] = {}
    for axis in contract.data_axes:
        specs = [
            spec
            for spec in contract.outputs
            if axis.name in spec.shape and spec.name in reference and spec.name in candidate
        ]
        grouped = _is_grouped(axis, specs)
        sides = [
            {spec.name: _by_row(spec, axis, tensors[spec.name], grouped=grouped) for spec in specs}
            for tensors in (reference, candidate)
        ]
        if specs and _comparable(sides[0], sides[1]):
            row_set = _RowSet(axis, specs, sides[0], sides[1], grouped=grouped)
            found |= {spec.name: row_set for spec in specs}
    return found


def _is_grouped(axis: DataAxis, specs: Sequence[TensorSpec]) -> bool:
    """Say whether each row of the batch has its own set: [batch, detections, 4]."""
    leading = {spec.shape[0] for spec in specs}
    return len(leading) == 1 and all(
        isinstance(dimension, str) and dimension != axis.name for dimension in leading
    )


def _by_row(
    spec: TensorSpec, axis: DataAxis, values: np.ndarray, *, grouped: bool
) -> np.ndarray | None:
    """Return an output as [groups, rows, ...], a view; None if it has another number of axes."""
    if values.ndim != len(spec.shape):
        return None
    place = spec.shape.index(axis.name)
    values = np.asarray(values)
    return np.moveaxis(values, place, 1) if grouped else np.moveaxis(values, place, 0)[None]


def _comparable(
    first: Mapping[str, np.ndarray | None], second: Mapping[str, np.ndarray | None]
) -> bool:
    for side in (first, second):
        if any(values is None for values in side.values()):
            return False
        if len({values.shape[:2] for values in side.values() if values is not None}) > 1:
            return False
    return all(
        one is not None
        and other is not None
        and one.dtype == other.dtype
        and one.shape[0] == other.shape[0]
        and one.shape[2:] == other.shape[2:]
        for one, other in zip(first.values(), second.values(), strict=True)
    )


class _RowSet:
    """Two matched sets of rows, and all outputs that share them: [groups, rows, ...] each."""

    def __init__(
        self,
        axis: DataAxis,
        specs: Sequence[TensorSpec],
        reference: Mapping[str, np.ndarray | None],
        candidate: Mapping[str, np.ndarray | None],
        *,
        grouped: bool,
    ) -> None:
        self._axis = axis
        self._grouped = grouped
        self._specs = {spec.name: spec for spec in specs}
        self._reference = {name: each for name, each in reference.items() if each is not None}
        self._candidate = {name: each for name, each in candidate.items() if each is not None}
        self._judged = axis.scores if axis.scores in self._specs else specs[0].name
        groups = next(iter(self._reference.values())).shape[0]
        # By group: [pairs, 2] indices of rows.
        self._pairs = [
            match_rows(axis, _lines(self._reference, group), _lines(self._candidate, group))
            for group in range(groups)
        ]

    @property
    def is_complete(self) -> bool:
        """True if every row has a counterpart."""
        matched = sum(map(len, self._pairs))
        return matched == self._count(self._reference) == self._count(self._candidate)

    def pair(self, output: str) -> tuple[np.ndarray, np.ndarray]:
        """Return the matched rows of an output, in one order: [pairs, ...] each."""
        one, other = (
            np.concatenate(
                [values[group, pairs[:, side]] for group, pairs in enumerate(self._pairs)]
            )
            for side, values in enumerate((self._reference[output], self._candidate[output]))
        )
        return one, other

    def metrics(self, output: str) -> TensorMetrics:
        """Return how an output differs on the matched rows, and which rows are in one set only."""
        metrics = compare(output, *self.pair(output))
        if metrics.elements == 0:
            metrics = dataclasses.replace(
                metrics,
                max_abs=0.0,
                max_rel=0.0,
                mean_abs=0.0,
                rms=0.0,
                cosine=1.0,
                agreement=1.0,
                nrmse=0.0,
                frontier=((0.0, 0.0),),
            )
        else:
            metrics = dataclasses.replace(
                metrics, worst_index=self._index(output, metrics.worst_index)
            )
        is_judged = output == self._judged
        rows = RowMetrics(
            self._axis.name,
            self._count(self._reference),
            self._count(self._candidate),
            sum(map(len, self._pairs)),
            self._unmatched() if is_judged else (),
            self._disorder() if is_judged else 0.0,
        )
        return dataclasses.replace(metrics, rows=rows)

    @staticmethod
    def _count(side: Mapping[str, np.ndarray]) -> int:
        shape = next(iter(side.values())).shape
        return shape[0] * shape[1]

    def _index(self, output: str, matched: tuple[int, ...]) -> tuple[int, ...]:
        """Return the index in the original's output of an element of the matched rows."""
        groups = np.repeat(np.arange(len(self._pairs)), [len(pairs) for pairs in self._pairs])
        group, row = int(groups[matched[0]]), int(np.concatenate(self._pairs)[matched[0], 0])
        rest = list(matched[1:])
        rest.insert(self._specs[output].shape.index(self._axis.name) - self._grouped, row)
        return (group, *rest) if self._grouped else tuple(rest)

    def _scores(self, side: Mapping[str, np.ndarray], group: int) -> np.ndarray | None:
        values = side.get(self._axis.scores or "")
        if values is None or math.prod(values.shape[2:]) != 1:
            return None
        return as_float64(np.ascontiguousarray(values[group])).reshape(-1)

    def _unmatched(self) -> tuple[UnmatchedRow, ...]:
        found = []
        for group in range(len(self._pairs)):
            found += self._left(group, 0, self._reference, self._candidate)
            found += self._left(group, 1, self._candidate, self._reference)
        found.sort(key=lambda row: -row.margin)
        return tuple(found[:_MOST_LISTED])

    def _left(
        self,
        group: int,
        column: int,
        own: Mapping[str, np.ndarray],
        other: Mapping[str, np.ndarray],
    ) -> list[UnmatchedRow]:
        """Return the rows of one side that have no counterpart in the other."""
        count = next(iter(own.values())).shape[1]
        left = np.setdiff1d(np.arange(count), self._pairs[group][:, column])
        if not left.size:
            return []
        scores, cut = self._scores(own, group), self._cut(other, group)
        lines = _lines(own, group)
        found = []
        for row in map(int, left):
            score = math.nan if scores is None else float(scores[row])
            finite = all(np.isfinite(values[row]).all() for values in lines.values())
            margin = abs(score - cut) if finite and math.isfinite(score) else math.inf
            found.append(
                UnmatchedRow(
                    "additional" if column else "missing",
                    (group, row) if self._grouped else (row,),
                    score,
                    margin,
                )
            )
        return found

    def _cut(self, side: Mapping[str, np.ndarray], group: int) -> float:
        """Return the score that a row had to exceed to be on this side: the threshold, or the
        lowest score there if the set is full. Minus infinity if that is unknown.
        """
        cut = -math.inf if self._axis.threshold is None else self._axis.threshold
        scores = self._scores(side, group)
        if scores is not None and scores.size and scores.size >= self._axis.max:
            cut = max(cut, float(scores.min()))
        return cut

    def _disorder(self) -> float:
        """Return by how much a later score of the candidate exceeds an earlier one; 0 if the
        original's scores do not descend, either.
        """
        largest = 0.0
        for group in range(len(self._pairs)):
            expected = self._scores(self._reference, group)
            found = self._scores(self._candidate, group)
            if expected is None or found is None or expected.size < _FEWEST_ORDERED:
                continue
            if found.size > 1 and (np.diff(expected) <= 0).all():
                largest = max(largest, float((found - np.minimum.accumulate(found)).max()))
        return largest


def _lines(side: Mapping[str, np.ndarray], group: int) -> dict[str, np.ndarray]:
    """Return one group's rows, each as a line of values; fractions as float64."""
    lines = {}
    for name, values in side.items():
        own = np.ascontiguousarray(values[group]).reshape(
            values.shape[1], math.prod(values.shape[2:])
        )
        lines[name] = own if own.dtype.kind in "iub" else as_float64(own)
    return lines
