"""Finds out which axis is the batch: the one whose rows are independent."""

import dataclasses
from collections.abc import Mapping

import numpy as np

from convkit.protocol.contract import DimensionError, TensorSpec
from convkit.protocol.messages import Sample
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.job_context import StageFailedError
from convkit.worker.survey.inputs.survey_messages import batch_axis
from convkit.worker.survey.sizes.first_working_sizes import Start, at_full_length
from convkit.worker.survey.sizes.size_trials import Trials

BATCH = "batch"
# Of an output's largest magnitude: rounding in another order of sums.
_ROUNDING = 1e-4
# Sizes of the axis, after its own.
_ROWS = (3, 2)


def is_independent(start: Start, axis: str, trials: Trials) -> bool | None:
    """Return True if other values in the last row along an axis leave the outputs' first row as it
    is, and change the last; None if that cannot be tried.
    """
    # The sides of images, which are fixed later, change nothing.
    key = tuple(
        (axis, spec.name, spec.dtype, start.samples[spec.name].kind, _places(spec, axis))
        for spec in start.inputs
    )
    return trials.remembered(key, lambda: _is_independent(start, axis, trials))


def _places(spec: TensorSpec, axis: str) -> tuple[bool, ...]:
    return tuple(size == axis for size in spec.shape)


def _is_independent(start: Start, axis: str, trials: Trials) -> bool | None:
    if not any(axis in spec.shape for spec in start.inputs):
        return None
    for rows in dict.fromkeys((start.sizes.get(axis, 0), *_ROWS)):
        if rows < 2 or rows in (size for name, size in start.sizes.items() if name != axis):
            continue
        sizes = {**start.sizes, axis: rows}
        samples = at_full_length(start.inputs, start.samples, sizes)
        try:
            base = trials.drawn(start.inputs, samples, sizes, Draw("rows"))
            other = trials.drawn(start.inputs, samples, sizes, Draw("other rows"))
        except (StageFailedError, DimensionError):
            return None
        changed = {
            spec.name: _last_of(base[spec.name], other[spec.name], spec, axis)
            for spec in start.inputs
        }
        before, after = trials.values(base), trials.values(changed)
        if before is not None and after is not None:
            return _only_last(before, after, rows)
    return None


def _last_of(values: np.ndarray, others: np.ndarray, spec: TensorSpec, axis: str) -> np.ndarray:
    """Return values with the last row of others along an axis, if they have it once."""
    if list(spec.shape).count(axis) != 1:
        return values
    mixed = np.array(np.moveaxis(values, spec.shape.index(axis), 0))
    mixed[-1] = np.moveaxis(others, spec.shape.index(axis), 0)[-1]
    return np.ascontiguousarray(np.moveaxis(mixed, 0, spec.shape.index(axis)))


def _only_last(
    before: Mapping[str, np.ndarray], after: Mapping[str, np.ndarray], rows: int
) -> bool:
    """Return True if all outputs with rows differ in the last only, and at least one has any."""
    moved = False
    for name, values in before.items():
        if values.shape != after[name].shape or values.dtype.kind not in "fiub":
            return False
        if rows not in values.shape:
            if not _alike(values, after[name]):
                return False
            continue
        place = values.shape.index(rows)
        one, two = (np.moveaxis(each, place, 0) for each in (values, after[name]))
        if not _alike(one[:-1], two[:-1]):
            return False
        moved |= not _alike(one[-1], two[-1])
    return moved


def _alike(one: np.ndarray, two: np.ndarray) -> bool:
    if not one.size:
        return True
    wide, other = one.astype(np.float64), two.astype(np.float64)
    scale = max(float(np.abs(wide).max()), 1e-30)
    return float(np.abs(wide - other).max()) <= _ROUNDING * scale


def with_batch(start: Start, trials: Trials) -> Start:
    """Return a start in which the axis with independent rows is called the batch: an axis that is
    called so may be that of time, as in recurrent layers that take time first.
    """
    if start.sizes.get(BATCH, 0) < 1 or is_independent(start, BATCH, trials) is not False:
        return start
    for axis in start.sizes:
        if axis != BATCH and is_independent(start, axis, trials):
            swapped = _swapped(start, axis)
            usual = dataclasses.replace(swapped, sizes=start.sizes)
            given = at_full_length(usual.inputs, usual.samples, usual.sizes)
            return usual if trials.run(usual.inputs, given, usual.sizes).worked else swapped
    return start


def _swapped(start: Start, axis: str) -> Start:
    names = {BATCH: axis, axis: BATCH}

    def renamed(spec: TensorSpec) -> TensorSpec:
        shape = tuple(
            names.get(size, size) if isinstance(size, str) else size for size in spec.shape
        )
        return dataclasses.replace(spec, shape=shape)

    def along(sample: Sample) -> Sample:
        if not isinstance(sample.along, str):
            return sample
        return dataclasses.replace(sample, along=names.get(sample.along, sample.along))

    return dataclasses.replace(
        start,
        inputs=tuple(map(renamed, start.inputs)),
        sizes={names.get(name, name): size for name, size in start.sizes.items()},
        samples={name: along(sample) for name, sample in start.samples.items()},
    )


def batch_notes(start: Start, trials: Trials) -> dict[str, str]:
    """Return what shows that the axis called the batch is one, or is none, by its name."""
    independent = is_independent(start, BATCH, trials)
    if independent is None:
        return {}
    places = {spec.shape.index(BATCH): spec.shape for spec in start.inputs if BATCH in spec.shape}
    # What is stacked before the batch, as the states of all layers are, has a fixed size.
    place = max(place for place, shape in places.items() if not place or isinstance(shape[0], str))
    alone = _runs_alone(start, trials)
    return {BATCH: batch_axis(independent=independent, place=place, alone=alone)}


def _runs_alone(start: Start, trials: Trials) -> bool:
    """Return True if the model also runs without the batch's axis, on sequences: that is another
    reading of the same shapes.
    """
    if not any(BATCH in spec.shape and len(spec.shape) > 1 for spec in start.inputs):
        return False
    if len(start.sizes) < 2:
        return False
    inputs = tuple(
        dataclasses.replace(spec, shape=tuple(size for size in spec.shape if size != BATCH))
        for spec in start.inputs
    )
    sizes = {name: size for name, size in start.sizes.items() if name != BATCH}
    return trials.run(inputs, at_full_length(inputs, start.samples, sizes), sizes).worked
