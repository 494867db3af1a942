"""Sliding windows over an axis, as slices side by side: `x.unfold` and its gradient, which torch's
`stft` and `istft` call.
"""

from collections.abc import Sequence

import torch


def unfold(x: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """`x.unfold`: windows of which each is its first steps side by side."""
    count = (x.shape[dimension] - size) // step + 1
    pieces = -(-size // step)
    moved = torch.constant_pad_nd(x.transpose(dimension, -1), [0, pieces * step - size])
    steps = [
        every(moved, -1, first * step, count * step, 1).unflatten(-1, (count, step))
        for first in range(pieces)
    ]
    windows = torch.cat(steps, -1) if pieces > 1 else steps[0]
    return every(windows, -1, 0, size, 1).transpose(dimension % x.ndim, -2)


def unfold_backward(
    windows: torch.Tensor, sizes: Sequence[int], dimension: int, size: int, step: int
) -> torch.Tensor:
    """Windows, added up where they overlap: torch's `istft` calls it."""
    pieces = -(-size // step)
    moved = torch.constant_pad_nd(windows.transpose(dimension, -2), [0, pieces * step - size])
    total = None
    for first in range(pieces):
        steps = every(moved, -1, first * step, step, 1).flatten(-2)
        # One step more than the last window has, for what lies behind it.
        placed = torch.constant_pad_nd(steps, [first * step, (pieces - first) * step])
        total = placed if total is None else total + placed
    assert total is not None
    return every(total, -1, 0, sizes[dimension], 1).transpose(dimension % len(sizes), -1)


def every(x: torch.Tensor, axis: int, first: int, count: int, step: int) -> torch.Tensor:
    """Return `count` elements along an axis, each `step` after the one before."""
    return torch.ops.aten.slice(x, axis, first, first + (count - 1) * step + 1, step)


def as_strided(
    x: torch.Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None
) -> torch.Tensor:
    """`x.as_strided` of a tensor without gaps."""
    places: torch.Tensor | int = storage_offset or 0
    for axis, (length, step) in enumerate(zip(size, stride, strict=True)):
        steps = torch.arange(length) * step
        places = places + steps.reshape(-1, *[1] * (len(size) - 1 - axis))
    if isinstance(places, int):
        return x.reshape(-1)[places]
    return x.reshape(-1).index_select(0, places.reshape(-1)).reshape(tuple(size))


def as_strided_scatter(
    x: torch.Tensor,
    src: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> torch.Tensor:
    """`x.as_strided_scatter`: a source in place of what `as_strided` returns."""
    places = as_strided(torch.arange(x.numel()), size, stride, storage_offset)
    return x.reshape(-1).scatter(0, places.reshape(-1), src.reshape(-1)).reshape(x.shape)
