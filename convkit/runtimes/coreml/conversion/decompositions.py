"""Operators that torch decomposes into what coremltools cannot convert, or not at all: statistics
that are returned together, and sliding windows.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

_STATISTICS = {torch.ops.aten.std_mean: torch.std, torch.ops.aten.var_mean: torch.var}


def own_decompositions() -> dict[Any, Callable[..., object]]:
    """Return the decompositions by operator."""
    aten = torch.ops.aten
    found: dict[Any, Callable[..., object]] = {
        aten.unfold.default: _unfold,
        aten.im2col.default: _im2col,
        aten.col2im.default: _col2im,
    }
    return found | {each.correction: partial(_both, whole) for each, whole in _STATISTICS.items()}


def with_correction(program: torch.export.ExportedProgram) -> None:
    """Write the older overloads as the one whose options have names: torch 2.13 cannot trace
    `std_mean(x, dim, unbiased, keepdim)` again, because its function accepts two arguments.
    """
    older = {
        overload: operator.correction
        for operator in _STATISTICS
        for overload in (operator.default, operator.dim)
    }
    for node in program.graph.nodes:
        if node.target in older:
            names = [each.name for each in node.target._schema.arguments]  # noqa: SLF001 - no other way
            given = dict(zip(names, node.args, strict=False)) | node.kwargs
            node.target = older[node.target]
            node.args = (given["self"], given.get("dim"))
            correction = int(given.get("unbiased", True))
            node.kwargs = {"correction": correction, "keepdim": given.get("keepdim", False)}


def _both(
    spread: Callable[..., torch.Tensor],
    x: torch.Tensor,
    dim: Sequence[int] | None = None,
    *,
    correction: float | None = None,
    keepdim: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    axes = list(dim or range(x.ndim))
    deviation = spread(x, axes, correction=correction, keepdim=keepdim)
    return deviation, torch.mean(x, axes, keepdim=keepdim)


def _unfold(x: torch.Tensor, dimension: int, size: int, step: int) -> torch.Tensor:
    """`x.unfold`: a slice for each place in the window."""
    count = (x.shape[dimension] - size) // step + 1
    return torch.stack([_every(x, dimension, first, count, step) for first in range(size)], -1)


def _im2col(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    """`F.unfold`: torch gathers the windows in six dimensions, and Core ML has five."""
    counts = _counts(x.shape[-2:], kernel_size, dilation, padding, stride)
    padded = torch.constant_pad_nd(x, [padding[1], padding[1], padding[0], padding[0]])
    windows = [
        _every(
            _every(padded, -2, row * dilation[0], counts[0], stride[0]),
            *(-1, column * dilation[1], counts[1], stride[1]),
        )
        for row, column in _places(kernel_size)
    ]
    stacked = torch.stack(windows, -3)
    return stacked.reshape(*x.shape[:-3], x.shape[-3] * len(windows), counts[0] * counts[1])


def _col2im(
    x: torch.Tensor,
    output_size: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> torch.Tensor:
    """`F.fold`, which adds up windows: torch writes them in place, which coremltools refuses."""
    places = _places(kernel_size)
    counts = _counts(output_size, kernel_size, dilation, padding, stride)
    channels = x.shape[-2] // len(places)
    windows = x.reshape(*x.shape[:-2], channels, len(places), *counts)
    total = None
    for index, place in enumerate(places):
        window = windows.select(-3, index)
        for axis in (0, 1):
            first = place[axis] * dilation[axis]
            length = output_size[axis] + 2 * padding[axis]
            window = _spread(window, axis - 2, first, length, stride[axis])
        total = window if total is None else total + window
    assert total is not None
    for axis in (0, 1):
        total = _every(total, axis - 2, padding[axis], output_size[axis], 1)
    return total


def _places(kernel_size: Sequence[int]) -> list[tuple[int, int]]:
    return [(row, column) for row in range(kernel_size[0]) for column in range(kernel_size[1])]


def _counts(
    sizes: Sequence[int],
    kernel_size: Sequence[int],
    dilation: Sequence[int],
    padding: Sequence[int],
    stride: Sequence[int],
) -> list[int]:
    """Return how many windows fit along both axes."""
    return [
        (size + 2 * padded - dilated * (kernel - 1) - 1) // step + 1
        for size, kernel, dilated, padded, step in zip(
            sizes, kernel_size, dilation, padding, stride, strict=True
        )
    ]


def _every(x: torch.Tensor, axis: int, first: int, count: int, step: int) -> torch.Tensor:
    """Return `count` elements along an axis, each `step` after the one before."""
    return torch.ops.aten.slice(x, axis, first, first + (count - 1) * step + 1, step)


def _spread(x: torch.Tensor, axis: int, first: int, length: int, step: int) -> torch.Tensor:
    """Return zeros of that length along an axis, with x in every `step`-th place from `first`."""
    moved = x.transpose(axis, -1)
    if step > 1:
        apart = torch.constant_pad_nd(moved.unsqueeze(-1), [0, step - 1])
        moved = apart.reshape(*moved.shape[:-1], moved.shape[-1] * step)
        moved = _every(moved, -1, 0, moved.shape[-1] - step + 1, 1)
    padded = torch.constant_pad_nd(moved, [first, length - first - moved.shape[-1]])
    return padded.transpose(axis, -1)
