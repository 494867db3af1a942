"""Compares many calls of the original with one long pass of it: what a loop must give."""

from collections.abc import Mapping, Sequence

import numpy as np

from convkit.protocol.contract import TensorSpec, dimension_axes
from convkit.protocol.messages import TensorMetrics
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.values.padding_masks import real_positions
from convkit.worker.metrics.tensor_metrics import compare
from convkit.worker.steps.call_inputs import Loop, mask_of, padding_of


def advancing_dimension(spec: TensorSpec, loop: Loop) -> int | None:
    """Return the dimension of an output along which the calls' parts follow each other."""
    for place, dimension in enumerate(spec.shape):
        axes = dimension_axes(dimension)
        if loop.steps.axis in axes and not set(loop.steps.grows) & set(axes):
            return place
    return None


def against_one_pass(loop: Loop, found: Sequence[Feeds], whole: Feeds) -> tuple[TensorMetrics, ...]:
    """Return how the calls' outputs differ from those of one pass, without what is at padding.

    Parts of a sequence are joined; of all else, such as caches, the last call's are compared.
    """
    metrics = []
    for spec in loop.contract.outputs:
        place = advancing_dimension(spec, loop)
        joined = found[-1][spec.name]
        if place is not None:
            joined = np.concatenate([outputs[spec.name] for outputs in found], axis=place)
        expected = whole[spec.name]
        padded = padding_of(spec, loop.contract, loop.steps, loop.whole, loop.whole_sizes)
        if padded is not None and padded.shape == expected.shape == joined.shape:
            expected, joined = (np.where(padded, 0, each) for each in (expected, joined))
        metrics.append(compare(spec.name, expected, joined))
    return tuple(metrics)


def share(metrics: TensorMetrics) -> float:
    """Return an output's error relative to the reference, RMS over RMS, or infinity."""
    if metrics.mismatch is not None or metrics.nan_candidate or metrics.inf_mismatched:
        return float("inf")
    if not metrics.rms:
        return 0.0
    return metrics.rms / metrics.reference_rms if metrics.reference_rms else float("inf")


def worst(measured: Sequence[TensorMetrics]) -> TensorMetrics:
    """Return the output that is furthest off."""
    return max(measured, key=share)


def row_alone(loop: Loop) -> tuple[int, int, Feeds] | None:
    """Return the row with most padding, how much it has, and the inputs of one pass over its real
    positions alone; None without padding.
    """
    mask = mask_of(loop.contract, loop.steps)
    if mask is None or loop.name != "steps-padded":
        return None
    pads = (~real_positions(loop.whole[mask.name], mask.padding)).sum(axis=-1)
    row, pad = int(pads.argmax()), int(pads.max())
    tensors = {**loop.whole, **loop.first}
    alone = {
        spec.name: real_part(spec, tensors[spec.name], loop, mask.shape[0], row, pad)
        for spec in loop.contract.inputs
    }
    return row, pad, alone


def real_part(
    spec: TensorSpec, values: np.ndarray, loop: Loop, rows: int | str, row: int, pad: int
) -> np.ndarray:
    """Return one row of a tensor, without the positions at padding."""
    index = []
    for dimension in spec.shape:
        if dimension == rows:
            index.append(slice(row, row + 1))
        else:
            index.append(slice(pad if loop.steps.axis in dimension_axes(dimension) else 0, None))
    return np.ascontiguousarray(values[tuple(index)])


def against_row_alone(
    loop: Loop, whole: Feeds, alone: Mapping[str, np.ndarray], row: int, pad: int
) -> tuple[TensorMetrics, ...]:
    """Return how a padded row's outputs differ from those of the row alone."""
    mask = mask_of(loop.contract, loop.steps)
    assert mask is not None
    return tuple(
        compare(
            spec.name,
            alone[spec.name],
            real_part(spec, whole[spec.name], loop, mask.shape[0], row, pad),
        )
        for spec in loop.contract.outputs
    )
