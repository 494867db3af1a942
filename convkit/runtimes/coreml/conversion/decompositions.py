"""Operators that torch decomposes into what coremltools cannot convert, or not at all: statistics
that are returned together, sliding windows, diagonals, inverse hyperbolic functions, and
shifts. `scatters` has those that write to parts of a tensor.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from convkit.runtimes.coreml.conversion.refused_arguments import argument_decompositions
from convkit.runtimes.coreml.conversion.scatters import placing_decompositions
from convkit.worker.exporters.decompositions import counted_values, placed_values, searches
from convkit.worker.exporters.decompositions.windows import (
    as_strided,
    every,
    unfold,
    unfold_backward,
)

_STATISTICS = {torch.ops.aten.std_mean: torch.std, torch.ops.aten.var_mean: torch.var}


def own_decompositions() -> dict[Any, Callable[..., object]]:
    """Return the decompositions by operator."""
    aten = torch.ops.aten
    found: dict[Any, Callable[..., object]] = {
        aten.unfold.default: unfold,
        aten.unfold_backward.default: unfold_backward,
        aten.as_strided.default: as_strided,
        aten.histc.default: counted_values.histogram,
        aten.im2col.default: _im2col,
        aten.col2im.default: _col2im,
        aten.diagonal.default: _diagonal,
        aten.diagonal_copy.default: _diagonal,
        aten.roll.default: _roll,
        aten._trilinear.default: _trilinear,  # noqa: SLF001 - torch's name
        aten.acosh.default: _acosh,
        aten.asinh.default: _asinh,
        aten.round.decimals: _rounded,
        **dict.fromkeys(
            (
                *(aten.__rshift__.Scalar, aten.__rshift__.Tensor),
                *(aten.bitwise_right_shift.Tensor, aten.bitwise_right_shift.Tensor_Scalar),
            ),
            _shifted_down,
        ),
        **dict.fromkeys(
            (
                *(aten.__lshift__.Scalar, aten.__lshift__.Tensor),
                *(aten.bitwise_left_shift.Tensor, aten.bitwise_left_shift.Tensor_Scalar),
            ),
            _shifted_up,
        ),
        aten.bucketize.Tensor: searches.bucketize,
        aten.erfc.default: lambda x: 1 - torch.erf(x),
        aten.special_erfc.default: lambda x: 1 - torch.erf(x),
        aten.isinf.default: lambda x: x.abs() == math.inf,
        aten.fmod.Tensor: _fmod,
        aten.fmod.Scalar: _fmod,
        aten.ldexp.Tensor: lambda x, power: x * torch.exp2(power.to(x.dtype)),
        aten.upsample_nearest1d.vec: _nearest,
        aten.upsample_nearest2d.vec: _nearest,
        aten.upsample_linear1d.vec: _linear,
        aten.upsample_bilinear2d.vec: _linear,
        **placing_decompositions(),
        aten.bincount.default: counted_values.counts,
        aten._unique2.default: counted_values.distinct,  # noqa: SLF001 - torch's name
        aten.unique_dim.default: counted_values.distinct_slices,
        aten.unique_consecutive.default: counted_values.distinct_neighbors,
        aten.embedding_renorm.default: placed_values.renormalized,
        aten.masked_scatter.default: placed_values.masked_scatter,
        aten.repeat_interleave.Tensor: counted_values.repeated_indices,
        aten.addmv.default: _added_product,
        aten.tril_indices.default: partial(counted_values.triangle_indices, upper=False),
        aten.triu_indices.default: partial(counted_values.triangle_indices, upper=True),
        **argument_decompositions(),
    }
    return found | {each.correction: partial(_both, whole) for each, whole in _STATISTICS.items()}


def with_correction(program: torch.export.ExportedProgram) -> None:
    """Write the older overloads as the one whose options have names: torch 2.13 cannot trace
    `std_mean(x, dim, unbiased, keepdim)` again, because its function accepts two arguments, and
    coremltools takes the `unbiased` of `x.var(False)` for axes.
    """
    aten = torch.ops.aten
    older = {
        overload: operator.correction
        for operator in (*_STATISTICS, aten.var, aten.std)
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


def _diagonal(x: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> torch.Tensor:
    """`x.diagonal`: each row's only element that is not hidden."""
    moved = x.movedim((dim1, dim2), (-2, -1))
    moved = moved[..., max(-offset, 0) :, max(offset, 0) :]
    rows, columns = moved.shape[-2:]
    count = rows if rows == columns else torch.sym_min(rows, columns)
    moved = moved[..., :count, :count]
    places = torch.arange(count)
    is_there = places.unsqueeze(-1) == places
    if x.dtype == torch.bool:
        return (moved & is_there).any(-1)
    return torch.where(is_there, moved, 0).sum(-1, dtype=x.dtype)


def _roll(x: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> torch.Tensor:
    """`torch.roll` along several axes, of which coremltools knows one, or of all elements."""
    if not dims:
        return _roll(x.reshape(-1), shifts, (0,)).reshape(x.shape)
    for shift, axis in zip(shifts, dims, strict=True):
        size = x.shape[axis]
        by = shift % size if isinstance(size, int) else shift
        x = torch.cat([x.narrow(axis, size - by, by), x.narrow(axis, 0, size - by)], axis)
    return x


def _nearest(
    x: torch.Tensor, sizes: Sequence[int] | None, factors: Sequence[float] | None
) -> torch.Tensor:
    """`interpolate(mode="nearest")` to a size that is computed, or by factors that leave a part of
    a pixel, axis by axis: as torch does, in float32.
    """
    olds = x.shape[2:]
    if sizes is None and not all(isinstance(old, int) for old in olds):
        return NotImplemented
    by_axis = factors or ()  # one of both is given
    news = sizes or [int(old * by) for old, by in zip(olds, by_axis, strict=True)]
    for axis, new in enumerate(news, 2):
        old = _as_float(x.shape[axis])
        step = 1 / by_axis[axis - 2] if by_axis else old / _as_float(new)
        places = torch.floor(torch.arange(new, dtype=torch.float32) * step)
        x = x.index_select(axis, torch.minimum(places, old - 1).to(torch.int32))
    return x


def _linear(
    x: torch.Tensor,
    sizes: Sequence[int] | None,
    align_corners: bool,  # noqa: FBT001 - torch's
    factors: Sequence[float] | None,
) -> torch.Tensor:
    """`interpolate` in modes linear and bilinear, to a size that is computed, or by factors that
    leave a part of a pixel.
    """
    given: Sequence[float | None] = [None] * (x.ndim - 2)
    if sizes is None:
        if factors is None or not all(isinstance(size, int) for size in x.shape[2:]):
            return NotImplemented
        given = factors
        sizes = [int(size * by) for size, by in zip(x.shape[2:], factors, strict=True)]
    for axis, (new, by) in enumerate(zip(sizes, given, strict=True), 2):
        old, steps = _as_float(x.shape[axis]), torch.arange(new, dtype=torch.float32)
        if align_corners:
            places = steps * ((old - 1) / torch.clamp_min(_as_float(new) - 1, 1))
        else:
            ratio = old / _as_float(new) if by is None else 1 / by
            places = torch.clamp_min((steps + 0.5) * ratio - 0.5, 0)
        low = torch.minimum(torch.floor(places), old - 1)
        share = (places - low).reshape(-1, *[1] * (x.ndim - 1 - axis)).to(x.dtype)
        before = x.index_select(axis, low.to(torch.int32))
        after = x.index_select(axis, torch.minimum(low + 1, old - 1).to(torch.int32))
        x = before + (after - before) * share
    return x


def _as_float(size: int) -> torch.Tensor:
    return torch.scalar_tensor(size, dtype=torch.float32)


def _trilinear(
    one: torch.Tensor,
    other: torch.Tensor,
    third: torch.Tensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,  # noqa: ARG001
) -> torch.Tensor:
    """What `nn.Bilinear` computes: a sum of products of three."""
    given = ((one, expand1), (other, expand2), (third, expand3))
    for_product = []
    for tensor, axes in given:
        for axis in sorted(axes):
            tensor = tensor.unsqueeze(axis)  # noqa: PLW2901
        for_product.append(tensor)
    first, second, last = for_product
    return (first * second * last).sum(list(sumdim))


def _added_product(
    x: torch.Tensor,
    matrix: torch.Tensor,
    vector: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    """`torch.addmv`."""
    return beta * x + alpha * torch.mv(matrix, vector)


def _fmod(x: torch.Tensor, divisor: torch.Tensor | float) -> torch.Tensor:
    """What division leaves, with the sign of the dividend."""
    return x - torch.trunc(torch.true_divide(x, divisor)) * divisor


def _acosh(x: torch.Tensor) -> torch.Tensor:
    # Two roots, because the square of a large number is infinite.
    return (x + (x - 1).sqrt() * (x + 1).sqrt()).log()


def _asinh(x: torch.Tensor) -> torch.Tensor:
    size = x.abs()
    return (size + size * size / (1 + (size * size + 1).sqrt())).log1p() * x.sign()


def _rounded(x: torch.Tensor, *, decimals: int) -> torch.Tensor:
    scale = 10.0**decimals
    return torch.round(x * scale) / scale


def _shifted_down(x: torch.Tensor, places: torch.Tensor | int) -> torch.Tensor:
    """`x >> places`, which keeps the sign."""
    return torch.div(x, _power_of_two(places), rounding_mode="floor")


def _shifted_up(x: torch.Tensor, places: torch.Tensor | int) -> torch.Tensor:
    return x * _power_of_two(places)


def _power_of_two(places: torch.Tensor | int) -> torch.Tensor | int:
    return 2**places if isinstance(places, int) else torch.exp2(places.float()).to(places.dtype)


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
        every(
            every(padded, -2, row * dilation[0], counts[0], stride[0]),
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
        total = every(total, axis - 2, padding[axis], output_size[axis], 1)
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


def _spread(x: torch.Tensor, axis: int, first: int, length: int, step: int) -> torch.Tensor:
    """Return zeros of that length along an axis, with x in every `step`-th place from `first`."""
    moved = x.transpose(axis, -1)
    if step > 1:
        apart = torch.constant_pad_nd(moved.unsqueeze(-1), [0, step - 1])
        moved = apart.reshape(*moved.shape[:-1], moved.shape[-1] * step)
        moved = every(moved, -1, 0, moved.shape[-1] - step + 1, 1)
    padded = torch.constant_pad_nd(moved, [first, length - first - moved.shape[-1]])
    return padded.transpose(axis, -1)
