"""Finds out what marks padding in a mask, 0 or 1: what is marked must not affect the rest."""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping

import numpy as np

from convkit.protocol.contract import Contract, TensorSpec, dimension_size
from convkit.protocol.messages import Layout, SurveyResult
from convkit.worker.cases.invariance_cases import position_dimensions
from convkit.worker.cases.values.padding_masks import padding_positions
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.survey.inputs.survey_messages import blank_output, masked_row_nan
from convkit.worker.survey.sizes.first_working_sizes import Start, at_full_length, is_mask
from convkit.worker.survey.sizes.size_trials import Trials, has_nan

Values = Mapping[str, np.ndarray]

# Of an output's largest magnitude: rounding in another order of sums. Another token changes more.
_ROUNDING = 1e-4
# A mask needs so many positions that something is left when one of them is padding.
_FEWEST = 3


def with_meanings(start: Start, trials: Trials) -> Start:
    """Return a start in which each mask marks padding by the value that hides it from the model.

    One position is marked, and other inputs get other values there: if nothing else changes, the
    mark means padding. That decides only if it holds for one of both values, and if unmarked, the
    position matters to others. A causal model does not look ahead, so the first position is tried
    after the last. Of several inputs along its positions, a mask may cover one.
    """
    for mask in start.inputs:
        if not is_mask(mask, start.samples):
            continue
        for covered, place in itertools.product(_covered(mask, start), (-1, 0)):
            trial = _Trial(mask, covered, place)
            hidden = [value for value in (0, 1) if _hides(value, trial, start, trials)]
            if len(hidden) == 1:
                chosen = dataclasses.replace(mask, padding=hidden[0])
                inputs = tuple(chosen if spec is mask else spec for spec in start.inputs)
                start = dataclasses.replace(start, inputs=inputs)
                break
    return start


def blank_at_padding(found: SurveyResult, trials: Trials) -> SurveyResult:
    """Return a result in which outputs have the mask that marks padding where they are NaN, and are
    NaN nowhere else: a model may write NaN where there is nothing.
    """
    contract = found.contract
    if not trials.has_time(1) or not any(is_mask(spec, found.samples) for spec in contract.inputs):
        return found
    sizes = contract.typical_sizes()
    feeds = trials.drawn(contract.inputs, found.samples, sizes, Draw("padded", "right"))
    values = trials.values(feeds)
    if values is None or not has_nan(values):
        return found
    outputs, notes = [], list(found.notes)
    for spec in contract.outputs:
        masks = (
            mask.name
            for mask in contract.inputs
            if is_mask(mask, found.samples)
            and _is_blank(values[spec.name], padding_positions(feeds, mask.name, mask.padding))
        )
        name = next(masks, None)
        outputs.append(dataclasses.replace(spec, mask=name))
        if name is not None:
            notes.append(blank_output(spec.name, name))
    contract = dataclasses.replace(contract, outputs=tuple(outputs))
    return dataclasses.replace(found, contract=contract, notes=tuple(notes))


def _is_blank(values: np.ndarray, padded: np.ndarray | None) -> bool:
    """Return True if values are NaN at padding, and nowhere else."""
    if padded is None or values.dtype.kind != "f" or values.shape[: padded.ndim] != padded.shape:
        return False
    blank = np.isnan(values).reshape(*padded.shape, -1)
    return bool(padded.any()) and np.array_equal(blank.any(-1), padded) and blank[padded].all()


def skipping_nan(found: SurveyResult, start: Start, trials: Trials) -> SurveyResult:
    """Return a result that leaves out the row without a real position if the model is NaN there."""
    if not _is_nan_if_masked(start, trials):
        return found
    return dataclasses.replace(found, skip=("masked-row",), notes=(*found.notes, masked_row_nan()))


def _is_nan_if_masked(start: Start, trials: Trials) -> bool:
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
        if not is_mask(spec, start.samples) and _position_axis(spec, mask) is not None
    )
    if along:
        yield along
    if len(along) > 1:
        yield from ((spec,) for spec in along)


def _hides(value: int, trial: _Trial, start: Start, trials: Trials) -> bool:
    """Return True if a mask hides a position that it marks by a value, and only then."""
    mask, place = trial.mask, trial.place
    positions = dimension_size(mask.shape[-1], start.sizes)
    if positions < _FEWEST or not trials.has_time(4):
        return False
    samples = at_full_length(start.inputs, start.samples, start.sizes)
    inputs = tuple(
        dataclasses.replace(spec, padding=value) if spec is mask else spec for spec in start.inputs
    )
    base = trials.drawn(inputs, samples, start.sizes, Draw("mask"))
    other = trials.drawn(inputs, samples, start.sizes, Draw("another"))
    seen = np.array(base[mask.name])
    marked = np.array(seen)
    marked[..., place] = value
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
