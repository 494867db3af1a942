"""Finds out which inputs are masks, and what hides a position in them: 0, 1, or minus infinity,
which is added to scores. What is hidden must not affect the rest.
"""

import contextlib
import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec, dimension_size
from convkit.protocol.messages import CaseName, Layout, Sample, SurveyResult
from convkit.protocol.numpy_dtypes import is_float
from convkit.worker.cases.invariance_cases import position_dimensions
from convkit.worker.cases.values.padding_masks import padding_positions
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.survey.inputs.survey_messages import (
    blank_output,
    masked_row_differs,
    masked_row_nan,
    written_at_padding,
    written_beyond,
)
from convkit.worker.survey.sizes.first_working_sizes import (
    Start,
    at_full_length,
    is_mask,
    is_padding_mask,
)
from convkit.worker.survey.sizes.size_trials import Trials, has_nan

Values = Mapping[str, np.ndarray]
MaskKind = Literal["padding_mask", "causal_mask"]

# Of an output's largest magnitude: rounding in another order of sums. Another token changes more.
_ROUNDING = 1e-4
# A mask needs so many positions that something is left when one of them is padding.
_FEWEST = 3
# A mask has rows, and positions.
_AXES_OF_MASK = 2
_TRUTH = (1, 2)
# The cases in which rows are shorter than their axis.
_PADDED_CASES: tuple[CaseName, ...] = ("padded", "ragged", "batch")
_NOWHERE = np.zeros(0, dtype=bool)


@dataclasses.dataclass(frozen=True)
class _Mark:
    """What hides a position: 0, 1, or a number in place of 1 that is added to scores."""

    padding: int
    numbers: tuple[float, ...] = ()


def with_meanings(start: Start, trials: Trials) -> Start:
    """Return a start in which each mask marks padding by the value that hides it from the model,
    and other inputs of whole numbers are masks if they turn out to be.

    One position is marked, and other inputs get other values there: if nothing else changes, the
    mark means padding. That decides only if it holds for one of the values, and if unmarked, the
    position matters to others. A causal model does not look ahead, so the first position is tried
    after the last. Of several inputs along its positions, a mask may cover one.
    """
    for number, mask in enumerate(start.inputs):
        kind = _kind(mask, start)
        if kind is None:
            continue
        mark = _mark_of(number, kind, start, trials)
        if mark is not None and _is_truth(number, start, trials):
            start = _marked(start, number, kind, mark)
    return start


def all_hide(start: Start, trials: Trials) -> bool:
    """Return True if something hides a position in each mask."""
    return all(
        _mark_of(number, kind, start, trials) is not None
        for number, spec in enumerate(start.inputs)
        if is_mask(spec, start.samples) and (kind := _kind(spec, start)) is not None
    )


def _mark_of(number: int, kind: MaskKind, start: Start, trials: Trials) -> _Mark | None:
    """Return what hides a position in a mask; None if that is not known."""
    mask = start.inputs[number]
    for covered, place in itertools.product(_covered(mask, start), (-1, 0)):
        trial = _Trial(mask, covered, place)
        hidden = [
            mark
            for mark in _marks(mask)
            if _hides(mark, trial, _marked(start, number, kind, mark), trials)
        ]
        # A cast to bools makes 1 of minus infinity.
        hidden = [mark for mark in hidden if not mark.numbers] or hidden
        if len(hidden) == 1:
            return hidden[0]
    return None


def _is_truth(number: int, start: Start, trials: Trials) -> bool:
    """Return True if whole numbers that an input may have count as true, all of them alike."""
    spec = start.inputs[number]
    sample = start.samples[spec.name]
    if sample.kind != "integers" or sample.numbers[1] <= len(_TRUTH):
        return True
    feeds = trials.drawn(
        start.inputs,
        at_full_length(start.inputs, start.samples, start.sizes),
        start.sizes,
        Draw("mask"),
    )
    one, two = (
        trials.values({**feeds, spec.name: np.full_like(feeds[spec.name], value)})
        for value in _TRUTH
    )
    return one is not None and two is not None and _agree(one, two, 0, 0)


def _kind(spec: TensorSpec, start: Start) -> MaskKind | None:
    """Return as which mask an input is tried; None if it is none."""
    sample = start.samples[spec.name]
    if sample.kind == "padding_mask":
        return "padding_mask"
    if sample.kind == "causal_mask":
        return "causal_mask"
    if sample.kind != "integers" or len(spec.shape) < _AXES_OF_MASK:
        return None
    return "causal_mask" if spec.shape[-2] == spec.shape[-1] else "padding_mask"


def _marks(mask: TensorSpec) -> tuple[_Mark, ...]:
    usual = (_Mark(0), _Mark(1))
    return (*usual, _Mark(1, (-math.inf,))) if is_float(mask.dtype) else usual


def _marked(start: Start, number: int, kind: MaskKind, mark: _Mark) -> Start:
    """Return a start in which an input is a mask that hides by a mark."""
    inputs = list(start.inputs)
    inputs[number] = dataclasses.replace(inputs[number], padding=mark.padding)
    samples = {**start.samples, inputs[number].name: Sample(kind, mark.numbers)}
    return dataclasses.replace(start, inputs=tuple(inputs), samples=samples)


def with_lengths(start: Start, trials: Trials) -> Start:
    """Return a start in which whole numbers by row are lengths if values beyond them have no effect
    on the rest. Rows are those of the batch, or whatever the numbers have one of each for: the
    candidates of a row.
    """
    for spec in start.inputs:
        sample = start.samples[spec.name]
        if spec.dtype not in ("int32", "int64") or sample.kind != "integers":
            continue
        of_rows = spec.shape in (("batch",), ("batch", 1))
        ends = {each.shape[len(spec.shape)] for each in start.inputs if _begins(each, spec)}
        axes = [axis for axis in start.sizes if axis not in spec.shape]
        for axis in axes if of_rows else [axis for axis in axes if axis in ends]:
            if _limits(spec, axis, start, trials):
                samples = {**start.samples, spec.name: Sample("lengths", along=axis)}
                start = dataclasses.replace(start, samples=samples)
                break
    return start


def _begins(whole: TensorSpec, spec: TensorSpec) -> bool:
    """Say whether a tensor has elements along another axis for each of a spec's."""
    axes = len(spec.shape)
    return axes > 0 and len(whole.shape) > axes and whole.shape[:axes] == spec.shape


def _limits(spec: TensorSpec, axis: str, start: Start, trials: Trials) -> bool:
    """Return True if a length hides what is beyond it along an axis, and only that."""
    size = start.sizes[axis]
    covered = [each for each in start.inputs if each is not spec and axis in each.shape]
    if size < _FEWEST or not covered or trials.is_over:
        return False
    samples = at_full_length(start.inputs, start.samples, start.sizes)
    base, other = (
        trials.drawn(start.inputs, samples, start.sizes, Draw(name)) for name in ("mask", "another")
    )
    changed = {
        each.name: _at_place(base[each.name], other[each.name], each.shape.index(axis), -1)
        for each in covered
    }

    def effect(length: int) -> bool | None:
        lengths = {spec.name: np.full_like(base[spec.name], length)}
        before = trials.values({**base, **lengths})
        after = trials.values({**base, **changed, **lengths})
        if before is None or after is None:
            return None
        return not _agree(before, after, size, -1)

    return effect(size - 1) is False and effect(size) is True


def blank_at_padding(found: SurveyResult, trials: Trials) -> SurveyResult:
    """Return a result in which outputs have the mask that marks padding where they are NaN, and are
    NaN nowhere else: a model may write NaN where there is nothing.
    """
    feeds = _padded(found, trials)
    values = trials.values(feeds) if feeds is not None else None
    if feeds is None or values is None or not has_nan(values):
        return found

    def is_blank(name: str) -> np.ndarray:
        blank: np.ndarray = np.isnan(values[name]) if values[name].dtype.kind == "f" else _NOWHERE
        return blank

    return _masked_where(found, feeds, is_blank, blank_output)


def unequal_at_padding(
    found: SurveyResult, trials: Trials, other: contextlib.AbstractContextManager[None]
) -> SurveyResult:
    """Return a result in which outputs have the mask that marks padding where they differ in
    another context, and differ nowhere else: what torch writes there depends on how it computes.
    """
    by_lengths = _has_lengths(found)
    feeds = _padded(found, trials, by_lengths=by_lengths)
    usual = trials.values(feeds) if feeds is not None else None
    if feeds is None or usual is None:
        return found
    with other:
        otherwise = trials.values(feeds)
    if otherwise is None:
        return found
    if by_lengths:
        changed = [name for name in usual if not _agree({name: usual[name]}, otherwise, 0, 0)]
        return _without_padding(found, changed) if changed else found

    def differs(name: str) -> np.ndarray:
        one, two = usual[name], otherwise[name]
        if one.dtype.kind != "f" or one.shape != two.shape or not one.size:
            return _NOWHERE
        scale = float(np.abs(one).max())
        changed: np.ndarray = ~(np.abs(one - two) <= _ROUNDING * scale)
        return changed

    masked = _masked_where(found, feeds, differs, written_at_padding)
    if masked is found or "masked-row" in found.skip:
        return masked
    return dataclasses.replace(
        masked, skip=(*found.skip, "masked-row"), notes=(*masked.notes, masked_row_differs())
    )


def _has_lengths(found: SurveyResult) -> bool:
    """Return True if nothing but lengths says what is padding."""
    return any(sample.kind == "lengths" for sample in found.samples.values()) and not any(
        is_padding_mask(spec, found.samples) for spec in found.contract.inputs
    )


def _without_padding(found: SurveyResult, outputs: Sequence[str]) -> SurveyResult:
    """Return a result without the cases in which lengths leave padding: an output's mask is one of
    positions.
    """
    skip = dict.fromkeys((*found.skip, *_PADDED_CASES))
    note = written_beyond(outputs, _PADDED_CASES)
    return dataclasses.replace(found, skip=tuple(skip), notes=(*found.notes, note))


def _padded(
    found: SurveyResult, trials: Trials, *, by_lengths: bool = False
) -> Mapping[str, np.ndarray] | None:
    """Return inputs with padding; None if no mask or lengths mark it, or the time is up."""
    contract = found.contract
    masked = any(is_padding_mask(spec, found.samples) for spec in contract.inputs)
    if not trials.has_time(1) or not (masked or by_lengths):
        return None
    sizes = contract.typical_sizes()
    return trials.drawn(contract.inputs, found.samples, sizes, Draw("padded", "right"))


def _masked_where(
    found: SurveyResult,
    feeds: Mapping[str, np.ndarray],
    elements: Callable[[str], np.ndarray],
    note: Callable[[str, str], str],
) -> SurveyResult:
    """Return a result in which outputs have the mask that marks the padding where some of their
    elements are, by the outputs' names, if there are any nowhere else.
    """
    contract = found.contract
    outputs, notes = [], list(found.notes)
    for spec in contract.outputs:
        masks = (
            mask.name
            for mask in contract.inputs
            if is_padding_mask(mask, found.samples)
            and _are_at(elements(spec.name), padding_positions(feeds, mask.name, mask.padding))
        )
        name = next(masks, None)
        outputs.append(dataclasses.replace(spec, mask=name or spec.mask))
        if name is not None:
            notes.append(note(spec.name, name))
    if tuple(outputs) == contract.outputs:
        return found
    contract = dataclasses.replace(contract, outputs=tuple(outputs))
    return dataclasses.replace(found, contract=contract, notes=tuple(notes))


def _are_at(elements: np.ndarray, padded: np.ndarray | None) -> bool:
    """Return True if there are elements at all padding, and nowhere else."""
    if padded is None or elements.shape[: padded.ndim] != padded.shape or not padded.any():
        return False
    return np.array_equal(elements.reshape(*padded.shape, -1).any(-1), padded)


def skipping_nan(found: SurveyResult) -> SurveyResult:
    """Return a result that leaves out the row without a real position: the model is NaN there."""
    return dataclasses.replace(found, skip=("masked-row",), notes=(*found.notes, masked_row_nan()))


def is_nan_if_masked(start: Start, trials: Trials) -> bool:
    """Return True if the model returns NaN for a row without a real position, and only then.

    Attention that leaves out everything divides zero by zero, as in `nn.MultiheadAttention`.
    """
    if not any(is_mask(spec, start.samples) for spec in start.inputs) or not trials.has_time(2):
        return False
    samples = at_full_length(start.inputs, start.samples, start.sizes)
    usual, masked = (
        trials.values(trials.drawn(start.inputs, samples, start.sizes, draw))
        for draw in (Draw("masked-row"), Draw("masked-row", "masked-row"))
    )
    return usual is not None and masked is not None and not has_nan(usual) and has_nan(masked)


@dataclasses.dataclass(frozen=True)
class _Trial:
    """A mask, the inputs that it may cover, and the position to mark."""

    mask: TensorSpec
    covered: tuple[TensorSpec, ...]
    place: int


def _covered(mask: TensorSpec, start: Start) -> Iterator[tuple[TensorSpec, ...]]:
    """Yield what a mask may cover: all inputs along its positions, then each."""
    along = tuple(
        spec
        for spec in start.inputs
        if spec is not mask
        and not is_mask(spec, start.samples)
        and _position_axis(spec, mask) is not None
    )
    if along:
        yield along
    if len(along) > 1:
        yield from ((spec,) for spec in along)


def _hides(mark: _Mark, trial: _Trial, start: Start, trials: Trials) -> bool:
    """Return True if a mask hides a position that it marks, and only then."""
    mask, place = trial.mask, trial.place
    positions = dimension_size(mask.shape[-1], start.sizes)
    if positions < _FEWEST or not trials.has_time(4):
        return False
    samples = at_full_length(start.inputs, start.samples, start.sizes)
    base = trials.drawn(start.inputs, samples, start.sizes, Draw("mask"))
    other = trials.drawn(start.inputs, samples, start.sizes, Draw("another"))
    seen = np.array(base[mask.name])
    marked = np.array(seen)
    marked[..., place] = mark.numbers[0] if mark.numbers else mark.padding
    changed = {
        spec.name: _at_place(base[spec.name], other[spec.name], axis, place)
        for spec in trial.covered
        if (axis := _position_axis(spec, mask)) is not None
    }
    before = trials.values({**base, mask.name: marked})
    after = trials.values({**base, **changed, mask.name: marked})
    if before is None or after is None or not _agree(before, after, positions, place):
        return False
    before, after = trials.values(base), trials.values({**base, **changed})
    return before is not None and after is not None and not _agree(before, after, positions, place)


def _position_axis(spec: TensorSpec, mask: TensorSpec) -> int | None:
    """Return the axis of an input along which a mask marks padding; None if there is none."""
    layout = Layout(masks=(mask.name,))
    covered = position_dimensions(spec, Contract((mask,), (), ()), layout)
    return next((axis for _, axis in covered), None)


def _at_place(values: np.ndarray, others: np.ndarray, axis: int, place: int) -> np.ndarray:
    """Return values with those of others at one position."""
    mixed = np.array(np.moveaxis(values, axis, -1))
    mixed[..., place] = np.moveaxis(others, axis, -1)[..., place]
    return np.moveaxis(mixed, -1, axis)


def _agree(one: Values, two: Values, positions: int, place: int) -> bool:
    """Return True if outputs agree everywhere but at one position: along each axis of that size."""
    for name, values in one.items():
        left, right = np.asarray(values), np.asarray(two[name])
        if left.shape != right.shape:
            return False
        for axis, size in enumerate(left.shape):
            if size == positions:
                left, right = (np.delete(each, place, axis) for each in (left, right))
        if left.dtype.kind not in "fiub" or not left.size:
            continue
        wide, other = left.astype(np.float64), right.astype(np.float64)
        scale = float(np.abs(wide).max())
        if not float(np.abs(wide - other).max()) <= _ROUNDING * scale:
            return False
    return True
