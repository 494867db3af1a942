"""Adaptive pooling and antialiased resizing, one axis after the other: a mean over windows, or a
weighted one, is a matrix product; a maximum is taken under a mask.

torch writes adaptive pooling out window by window, and has no decomposition of the other. The
matrices follow from the sizes alone, so that runtimes fold them; an axis may be open.
"""

import itertools
import math
from collections.abc import Callable, Sequence

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

AXES_OF_AN_IMAGE = (-2, -1)
# Of `F.grid_sample`.
_NEAREST, _CUBIC = 1, 2  # torch's numbers of modes; 0 is linear
_ZEROS, _BORDER = 0, 1  # and of what is outside; 2 mirrors
_SHARPNESS = -0.75  # of torch's grids


def adaptive_mean(values: torch.Tensor, output_size: Sequence[int]) -> torch.Tensor:
    """`F.adaptive_avg_pool1d`, `2d` and `3d`."""
    for axis, count in _sizes(values, output_size):
        size = values.shape[axis]
        if _is_known(size == count):
            continue
        if _is_known(count == 1):
            values = values.mean(axis, keepdim=True)
            continue
        inside = _windows(size, count)
        weights = inside.to(values.dtype) / inside.sum(-1, keepdim=True).to(values.dtype)
        values = _along(values, axis, weights)
    return values


def adaptive_maximum(
    values: torch.Tensor, output_size: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """`F.adaptive_max_pool1d`, `2d` and `3d`, with the places of the maxima in the flattened
    image: a pooling where all windows are equal.
    """
    if len(output_size) > 1 and not has_uneven_windows(values, output_size):
        window = [values.shape[axis] // count for axis, count in _sizes(values, output_size)]
        pools = (torch.ops.aten.max_pool2d_with_indices, torch.ops.aten.max_pool3d_with_indices)
        return pools[len(window) - 2](values, window, window)
    places, block = None, 1
    # The last axis first: of equal values, torch takes the first in memory.
    for axis, count in reversed(_sizes(values, output_size)):
        size = values.shape[axis]
        lowest = torch.full((), -torch.inf, dtype=values.dtype)
        moved = values.transpose(axis, -1).unsqueeze(-2)
        windows = torch.where(_windows(size, count), moved, lowest)
        chosen = windows.argmax(-1)
        values = windows.amax(-1).transpose(axis, -1)
        where = chosen.transpose(axis, -1)
        within = places.gather(axis, where) if places is not None else torch.zeros_like(where)
        places, block = within + where * block, block * size
    assert places is not None
    return values, places


def resized(
    cubic: bool,  # noqa: FBT001 - bound once for each operator
    values: torch.Tensor,
    output_size: Sequence[int] | None,
    align_corners: bool,  # noqa: FBT001 - torch's
    scale_factors: Sequence[float] | None = None,
) -> torch.Tensor:
    """`F.interpolate(mode="bilinear" or "bicubic", antialias=True)`."""
    for place, axis in enumerate(AXES_OF_AN_IMAGE):
        size = values.shape[axis]
        factor = scale_factors[place] if scale_factors is not None else None
        count = output_size[place] if output_size is not None else math.floor(size * (factor or 1))
        if align_corners:
            scale = _ratio(size - 1, count - 1)
        else:
            scale = _ratio(size, count) if factor is None else 1 / factor
        weights = _filter(size, count, scale, _cubic if cubic else _triangle, 4 if cubic else 2)
        values = _along(values, axis, weights.to(values.dtype))
    return values


def has_uneven_windows(values: torch.Tensor, output_size: Sequence[int]) -> bool:
    """Say whether the windows of an adaptive pooling may differ, which torch writes out one by
    one.
    """
    return not all(
        _is_known(values.shape[axis] % count == 0) for axis, count in _sizes(values, output_size)
    )


def _sizes(values: torch.Tensor, output_size: Sequence[int | None]) -> list[tuple[int, int]]:
    """Return the axes that are resampled, and their sizes afterwards."""
    axes = range(-len(output_size), 0)
    return [
        (axis, values.shape[axis] if count is None else count)
        for axis, count in zip(axes, output_size, strict=True)
    ]


def _is_known(condition: object) -> bool:
    """Say whether a condition on sizes holds for all of them, without fixing an open one."""
    return bool(statically_known_true(condition))


def _windows(size: int, count: int) -> torch.Tensor:
    """Return the places inside of each window: (count, size)."""
    numbers, places = torch.arange(count).unsqueeze(-1), torch.arange(size)
    return (places >= numbers * size // count) & (
        places < ((numbers + 1) * size + count - 1) // count
    )


def _along(values: torch.Tensor, axis: int, weights: torch.Tensor) -> torch.Tensor:
    """Multiply an axis with a matrix (after, before)."""
    if axis == -1:
        return torch.matmul(values, weights.mT)
    if axis == -2:
        return torch.matmul(weights, values)
    return torch.matmul(values.transpose(axis, -1), weights.mT).transpose(axis, -1)


def _ratio(one: int | torch.SymInt, other: int | torch.SymInt) -> float | torch.Tensor:
    """Return the quotient of two sizes, in float32 where one is open; 0 for a divisor of 0."""
    if isinstance(one, int) and isinstance(other, int):
        return one / other if other else 0.0
    over, under = (torch.scalar_tensor(each, dtype=torch.float32) for each in (one, other))
    return torch.where(under == 0, 0.0, over / torch.clamp_min(under, 1))


def _filter(
    size: int,
    count: int,
    scale: float | torch.Tensor,
    shape: Callable[[torch.Tensor], torch.Tensor],
    taps: int,
) -> torch.Tensor:
    """Return the weights (count, size) as torch computes them (UpSampleKernel.cpp,
    `_compute_index_ranges_weights`): a filter of `taps` at scale 1, stretched over what shrinks.
    """
    stretched = scale.clamp_min(1) if isinstance(scale, torch.Tensor) else max(scale, 1.0)
    support = taps / 2 * stretched
    centers = ((torch.arange(count) + 0.5) * scale).unsqueeze(-1)
    first = (centers - support + 0.5).trunc().clamp_min(0)
    last = (centers + support + 0.5).trunc()
    places = torch.arange(size)
    weights = shape((places - centers + 0.5) / stretched)
    weights = torch.where((places >= first) & (places < last), weights, 0.0)
    return weights / weights.sum(-1, keepdim=True)


def _triangle(x: torch.Tensor) -> torch.Tensor:
    return (1 - x.abs()).clamp_min(0)


def _cubic(x: torch.Tensor, sharpness: float = -0.5) -> torch.Tensor:
    """Keys' filter (1981), with a = -0.5 as torch's antialiased resizing has it."""
    x = x.abs()
    near = ((sharpness + 2) * x - (sharpness + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * sharpness
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))


def sampled_at(
    x: torch.Tensor,
    grid: torch.Tensor,
    mode: int,
    outside: int,
    align_corners: bool,  # noqa: FBT001 - torch's
) -> torch.Tensor:
    """`F.grid_sample` of images and volumes: (batch, channels, *sizes) at (batch, *places, axes).

    Each tap of each axis is a place and a weight; their products over the axes are gathered and
    added up.
    """
    taps = [
        _taps(grid[..., -1 - axis], size, mode, outside, align_corners)
        for axis, size in enumerate(x.shape[2:])
    ]
    flat = x.flatten(2)
    total: torch.Tensor | None = None
    for chosen in itertools.product(*taps):
        place, weight = chosen[0]
        for size, (step, share) in zip(x.shape[3:], chosen[1:], strict=True):
            place, weight = place * size + step, weight * share
        # Whole numbers below 2^24 are exact, and tensors with more elements have no gather anyway.
        index = place.to(torch.int64).flatten(1).unsqueeze(1)
        found = flat.gather(2, index.expand(-1, x.shape[1], -1)) * weight.flatten(1).unsqueeze(1)
        total = found if total is None else total + found
    assert total is not None
    return total.unflatten(-1, grid.shape[1:-1])


def _taps(
    grid: torch.Tensor,
    size: int,
    mode: int,
    outside: int,
    align_corners: bool,  # noqa: FBT001 - torch's
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the places along an axis that a result is made of, with their weights."""
    at = (grid + 1) * ((size - 1) / 2) if align_corners else ((grid + 1) * size - 1) / 2
    if mode != _CUBIC:
        at = _inside(at, size, outside, align_corners)
    low = torch.round(at) if mode == _NEAREST else torch.floor(at)
    share = at - low
    if mode == _NEAREST:
        weights = {0: torch.ones_like(at)}
    elif mode == _CUBIC:
        weights = {step: _cubic(share - step, _SHARPNESS) for step in (-1, 0, 1, 2)}
    else:
        weights = {0: 1 - share, 1: share}
    found = []
    for step, weight in weights.items():
        place = low + step
        if mode == _CUBIC:
            place = _inside(place, size, outside, align_corners)
        is_there = (place >= 0) & (place <= size - 1)
        found.append((place.clamp(0, size - 1), torch.where(is_there, weight, 0.0)))
    return found


def _inside(
    at: torch.Tensor,
    size: int,
    outside: int,
    align_corners: bool,  # noqa: FBT001 - torch's
) -> torch.Tensor:
    """Return places in range, except for those that are zeros outside."""
    if outside == _ZEROS:
        return at
    if outside != _BORDER:
        low, span = (0.0, size - 1) if align_corners else (-0.5, size)
        if span == 0:
            return torch.zeros_like(at)
        past = (at - low).abs()
        turns = torch.floor(past / span)
        rest = past - turns * span
        is_even = turns - 2 * torch.floor(turns / 2) == 0
        at = torch.where(is_even, rest, span - rest) + low
    return at.clamp(0, size - 1)
