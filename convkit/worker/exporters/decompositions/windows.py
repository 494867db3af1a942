"""Sliding windows over an axis, as slices side by side: `x.unfold` and its gradient, which torch's
`stft` and `istft` call; and padding that repeats what is there.
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


def repeating_pad(
    x: torch.Tensor, pad: Sequence[int], mode: str = "constant", value: float | None = None
) -> torch.Tensor:
    """`F.pad` in modes reflect, replicate and circular, one axis after the other; what is negative
    is cut off. Each axis of `pad` is known, the sizes of `x` may be open.
    """
    if mode == "constant":
        return torch.constant_pad_nd(x, list(pad), value or 0)
    for place, (before, after) in enumerate(zip(pad[::2], pad[1::2], strict=True)):
        axis = x.ndim - 1 - place
        if mode == "circular":  # around what is left
            x = _cut(x, axis, before, after)
        size, first, last = x.shape[axis], max(before, 0), max(after, 0)
        if mode == "reflect":
            ends = x.narrow(axis, 1, first), x.narrow(axis, size - 1 - last, last)
            sides = [each.flip(axis) for each in ends]
        elif mode == "replicate":
            ends = (x.narrow(axis, 0, 1), first), (x.narrow(axis, size - 1, 1), last)
            sides = [
                each.expand(*each.shape[:axis], count, *each.shape[axis + 1 :])
                for each, count in ends
            ]
        else:
            sides = [x.narrow(axis, size - first, first), x.narrow(axis, 0, last)]
        parts = [sides[0]] * (first > 0) + [x] + [sides[1]] * (last > 0)
        x = torch.cat(parts, axis) if len(parts) > 1 else x
        if mode != "circular":
            x = _cut(x, axis, before, after)
    return x


def _cut(x: torch.Tensor, axis: int, before: int, after: int) -> torch.Tensor:
    """Cut off what a negative padding cuts off."""
    first, last = max(-before, 0), max(-after, 0)
    return x.narrow(axis, first, x.shape[axis] - first - last) if first or last else x
