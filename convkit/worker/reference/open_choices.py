"""Finds what the original leaves open: outputs that are places of scores which it chooses from, of
a largest value, of the best k, in order; and what follows from the order of equal ones.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch._ops import OpOverload

from convkit.protocol.contract import Contract
from convkit.protocol.messages import CaseRecord, LowType
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.cases.equal_scores import (
    NEAR,
    NEAR_IN,
    ScoredPlaces,
    differing,
    write_open,
    write_scores,
)
from convkit.worker.original.dispatch_mode import OperationMode
from convkit.worker.original.first_results import FirstResults, repeated
from convkit.worker.original.torch_dtypes import to_array
from convkit.worker.original.unsteady_mode import Unsteady
from convkit.worker.reference.original_model import OriginalModel
from convkit.worker.runtime_interface.sessions import RunFailedError

# Operations that return places along their argument `dim`, and which of their results these are.
_PLACES = {
    "aten::argmax": None,
    "aten::argmin": None,
    "aten::max.dim": 1,
    "aten::min.dim": 1,
    "aten::topk": 1,
    "aten::sort": 1,
    "aten::sort.stable": 1,
    "aten::kthvalue": 1,
    "aten::median.dim": 1,
    "aten::nanmedian.dim": 1,
    "aten::mode": 1,
}
# Those of them that choose what lies between others.
_BETWEEN = ("aten::kthvalue", "aten::median", "aten::nanmedian", "aten::mode")
# Those that return several in the order of their scores, and equal whole numbers in any order:
# torch documents the first for the others.
_ORDERED = ("aten::topk", "aten::sort", "aten::sort.stable")
# Orders of equal scores that are tried: of two, one remains untried in one of 64 times.
_ORDERS = 7
_LABELS = (np.int64, np.int32)
# Of cases that take longer than this, in seconds, what low types leave open is not looked for.
_MOST_SECONDS = 0.5
# Scores that rounding moves further, in parts of the largest, are no scores to rank by.
_MOST_NOISE = 1e-3
# The part of an output's labels that a low type may leave open. Where it leaves more, each of them
# is one of those that the original returns in more orders of near scores; if these are a larger
# part than this of the labels that there are, they say nothing.
_MOST_OPEN, _MOST_OF_LABELS = 0.5, 0.5
# Orders of near scores from which other labels are collected, and how many numbers are kept.
_MORE_ORDERS, _MOST_OTHERS = 24, 1 << 22


@dataclasses.dataclass(frozen=True)
class _Choice:
    """Places, and the scores they were chosen from. Rows have the shape of the places."""

    places: np.ndarray
    scored: ScoredPlaces

    @property
    def has_equals(self) -> bool:
        return bool(self.scored.has_equals(self.places).any())


class _Choices(OperationMode):
    """Collects what operations choose while the mode is on."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[_Choice] = []
        # How many places choices have that come in the order of their scores.
        self.ordered: set[int] = set()
        self.before = FirstResults(until=_PLACES)

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        result = function(*args, **kwargs)
        self.before.add(function, args, kwargs, result)
        if function.name() in _PLACES:
            at = _PLACES[function.name()]
            places = result if at is None else result[at]
            axis = _argument(function, "dim", args, kwargs)
            self.found += _choice(to_array(args[0]), axis, to_array(places))
            if function.name() in _ORDERED and places.dim():
                self.ordered.add(places.shape[axis])
        return result


def _argument(
    function: OpOverload, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:  # noqa: ANN401 - an argument of an operation
    """Return an argument of a call, or its default."""
    for position, each in enumerate(function._schema.arguments):  # noqa: SLF001 - torch has no other way
        if each.name == name:
            return args[position] if position < len(args) else kwargs.get(name, each.default_value)
    raise ValueError(f"{function.name()} has no argument {name!r}")


class AnyOfEquals(OperationMode):
    """Lets choices take any of the scores that are equal, or equal but for rounding, while it is
    on. Which of them torch returns first is left open, and which a runtime does follows its
    rounding. Whole numbers do not round: only what torch leaves open is open for them.
    """

    def __init__(self, seed: int, near: float = NEAR, before: FirstResults | None = None) -> None:
        """`near`: how far two equal scores are apart at most, in parts of the largest. `before`:
        what operations before the first choice return, in a run with the same inputs.
        """
        super().__init__()
        self._near = near
        self._before = iter(()) if before is None else before.again()
        self._random = torch.Generator().manual_seed(seed)

    def operation(
        self, function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> object:
        if (known := repeated(self._before, function, args, kwargs)) is not None:
            return known
        name = function.name()
        if name not in _PLACES or not args[0].numel() or not args[0].dim():
            return function(*args, **kwargs)
        scores, axis = args[0], _argument(function, "dim", args, kwargs)
        is_whole = not scores.is_floating_point()
        if name.startswith(_BETWEEN) or (is_whole and _is_ordered(function, args, kwargs)):
            return function(*args, **kwargs)
        places = function(self._moved(scores, axis), *args[1:], **kwargs)
        if _PLACES[name] is None:
            return places
        indices = places[1]
        kept = indices.dim() == scores.dim()
        at = indices if kept else indices.unsqueeze(axis)
        values = scores.gather(axis, at)
        return values if kept else values.squeeze(axis), indices

    def _moved(self, scores: torch.Tensor, axis: int | None) -> torch.Tensor:
        """Return scores in float64, by as much off as two equal ones of an axis may be; of whole
        numbers, their ranks, which stay in their order.
        """
        if not scores.is_floating_point():
            ranks = torch.unique(scores, return_inverse=True)[1]
            return ranks + self._parts(scores.shape) / 2
        finite = torch.where(scores.isfinite(), scores.abs(), 0).double()
        largest = finite.max() if axis is None else finite.amax(axis, keepdim=True)
        return scores.double() + (self._parts(scores.shape) - 0.5) * self._near * largest

    def _parts(self, shape: torch.Size) -> torch.Tensor:
        """Return random numbers from 0 to 1."""
        return torch.rand(shape, generator=self._random, dtype=torch.float64)


def _is_ordered(function: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Say whether torch documents the order in which a choice returns equal scores."""
    if function.name() == "aten::sort.stable":
        return bool(_argument(function, "stable", args, kwargs))
    return function.name() not in _ORDERED


def write_open_choices(
    original: OriginalModel,
    contract: Contract,
    records: Sequence[CaseRecord],
    folder: Path,
    types: Sequence[LowType],
) -> None:
    """Write what the original leaves open in each case of the ladder: the scores of each output
    that is a place of equal ones, and which elements depend on the order of equal ones; and which
    labels depend on the order of scores that a type of `types` does not tell apart. Runs the
    original once more for each case, until one has no choice, and again where scores are near.
    """
    for record in records:
        if record.kind != "ladder" or not record.runnable:
            continue
        feeds = read_tensors(folder, record.name, "inputs", contract.inputs)
        outputs = read_tensors(folder, record.name, "outputs", contract.outputs)
        with _Choices() as seen:
            original.run(feeds)
        if not seen.found and any(each.size for each in outputs.values()):
            break
        case = _Case(record.name, original, feeds, seen.before)
        labels = {name: each for name, each in outputs.items() if each.dtype in _LABELS}
        for name, each in _scored(labels, seen.found).items():
            if each.has_equals(outputs[name]).any():
                write_scores(folder, record.name, {name: each})
        near = max(NEAR, _noise(original, feeds, seen.found))
        if any(each.has_equals or each.scored.are_near(near) for each in seen.found):
            _write_open(case, outputs, folder, near)
        if labels and seen.found and record.seconds <= _MOST_SECONDS:
            _write_open_labels(case, labels, folder, types, seen.ordered)


@dataclasses.dataclass(frozen=True)
class _Case:
    """A case that the original ran, and what it computed before the first choice."""

    name: str
    original: OriginalModel
    feeds: Feeds
    before: FirstResults

    def in_other_order(self, near: float, seed: int) -> Feeds:
        """Return the original's outputs with scores as near as that in another order; none if it
        then refuses to run: the place of one score may lead nowhere.
        """
        try:
            with AnyOfEquals(seed, near, self.before):
                return self.original.run(self.feeds)
        except RunFailedError:
            return {}

    def open_elements(self, outputs: Feeds, near: float) -> dict[str, np.ndarray]:
        """Return which elements of outputs depend on the order of scores as near as that."""
        are_open = {name: np.zeros(each.shape, dtype=bool) for name, each in outputs.items()}
        for seed in range(_ORDERS):
            other = self.in_other_order(near, seed)
            for name in are_open:
                if name in other:
                    are_open[name] |= differing(outputs[name], other[name])
        return are_open


def _write_open(case: _Case, outputs: Feeds, folder: Path, near: float) -> None:
    """Write which elements of a case's outputs are others if scores as near as that come in another
    order.
    """
    are_open = case.open_elements(outputs, near)
    if any(each.any() for each in are_open.values()):
        write_open(folder, case.name, are_open)


def _write_open_labels(
    case: _Case, labels: Feeds, folder: Path, types: Sequence[LowType], ordered: Collection[int]
) -> None:
    """Write what other labels are right because they depend on the order of scores that a type does
    not tell apart: any where that is a part of an output's, else those that the original returns in
    other orders. `ordered` is how many places come in the order of their scores.
    """
    known = [low for low in types if low in NEAR_IN]
    for near in dict.fromkeys(NEAR_IN[low] for low in known):
        found = case.open_elements(labels, near)
        parts = {name: each for name, each in found.items() if each.any()}
        many = {name: labels[name] for name, each in parts.items() if each.mean() > _MOST_OPEN}
        others = _other_labels(case, many, near, ordered) if many else {}
        written = {name: each for name, each in parts.items() if name not in many} | others
        for low in known:
            if NEAR_IN[low] == near and written:
                write_open(folder, case.name, written, low)


def _other_labels(
    case: _Case, labels: Feeds, near: float, ordered: Collection[int]
) -> dict[str, np.ndarray]:
    """Return which labels are as right as an output's, along a last axis: those that come at the
    same place in another order, or in the same row of as many as are ordered. Nothing of an output
    that they say nothing of, as they are most labels that there are.
    """
    seen: dict[str, list[np.ndarray]] = {name: [each] for name, each in labels.items()}
    for seed in range(_MORE_ORDERS):
        for name, each in case.in_other_order(near, seed).items():
            if name in seen and each.shape == labels[name].shape:
                seen[name].append(each)
    found = {}
    for name, runs in seen.items():
        others = np.stack(runs, axis=-1)
        if labels[name].ndim > 1 and labels[name].shape[-1] in ordered:
            row = others.reshape(*others.shape[:-2], 1, -1)
            others = np.broadcast_to(row, (*labels[name].shape, row.shape[-1]))
        if others.size <= _MOST_OTHERS and _say_something(others):
            found[name] = np.ascontiguousarray(others)
    return found


def _say_something(others: np.ndarray) -> bool:
    """Return whether other labels are a small part of those that an output has."""
    ranked = np.sort(others.reshape(-1, others.shape[-1]), axis=-1)
    different = 1 + np.count_nonzero(np.diff(ranked, axis=-1), axis=-1)
    labels = int(ranked.max()) - int(ranked.min()) + 1
    return bool(different.mean() <= _MOST_OF_LABELS * labels)


def _noise(original: OriginalModel, feeds: Feeds, choices: Sequence[_Choice]) -> float:
    """Return how far the scores of choices are off, in parts of the largest, if every result in the
    model is off by rounding; 0 if no scores are near enough for that to matter, or if the model
    then refuses to run or makes other choices.
    """
    if not any(each.scored.are_near(_MOST_NOISE) for each in choices):
        return 0.0
    try:
        with _Choices() as others, Unsteady():
            original.run(feeds)
    except RunFailedError:  # a whole number that is off by rounding may be a place beyond a table
        return 0.0
    pairs = [
        (each.scored.scores, other.scored.scores)
        for each, other in zip(choices, others.found, strict=False)
        if each.scored.scores.dtype.kind == "f"
    ]
    if len(others.found) != len(choices) or any(a.shape != b.shape for a, b in pairs):
        return 0.0
    largest = 0.0
    for scores, other in pairs:
        finite = np.isfinite(scores) & np.isfinite(other)
        size = np.abs(scores, where=finite, out=np.zeros_like(scores)).max(initial=0.0)
        apart = np.abs(scores - other, where=finite, out=np.zeros_like(scores))
        if size > 0:
            largest = max(largest, float(apart.max(initial=0.0) / size))
    return min(2 * largest, _MOST_NOISE)


def _scored(outputs: Feeds, choices: Sequence[_Choice]) -> dict[str, ScoredPlaces]:
    """Return the outputs that are the places of a choice, whatever their shape."""
    found = {}
    for name, values in outputs.items():
        for choice in choices:
            if np.array_equal(choice.places.ravel(), values.ravel()):
                rows = choice.scored.rows.reshape(values.shape)
                found[name] = dataclasses.replace(choice.scored, rows=rows)
                break
    return found


def _choice(scores: np.ndarray, axis: int | None, places: np.ndarray) -> list[_Choice]:
    """Return what was chosen along an axis, or from all scores; nothing if there is no choice."""
    if axis is None:
        scores, places, axis = scores.reshape(-1), places.reshape(-1), 0
    if not scores.ndim or not scores.shape[axis] or not places.size:
        return []
    last = np.moveaxis(scores, axis, -1)
    rows = np.arange(last[..., 0].size).reshape(last.shape[:-1])
    if places.ndim == scores.ndim:
        rows = np.broadcast_to(np.expand_dims(rows, axis), places.shape)
    table = np.ascontiguousarray(last.reshape(-1, last.shape[-1]))
    return [_Choice(places, ScoredPlaces(table, np.ascontiguousarray(rows.reshape(places.shape))))]
