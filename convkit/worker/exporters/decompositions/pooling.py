"""Pooling by steps whose meaning every converter shares: padding is written out, and so is what a
mean is divided by. ONNX knows no divisor, and runtimes differ in whether a mean counts what lies
beyond the padding of a rounded-up size.
"""

import itertools
import math
from collections.abc import Sequence

import torch


def average(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,  # noqa: FBT001, FBT002 - torch's
    count_include_pad: bool = True,  # noqa: FBT001, FBT002 - torch's
    divisor_override: int | None = None,
) -> torch.Tensor:
    """`F.avg_pool1d`, `2d` and `3d`; those that need no more than their windows stay."""
    if not needs_averages(
        x, kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    ):
        return NotImplemented
    pool = _Pool.of(kernel_size, stride, padding, 1, ceil_mode=ceil_mode)
    means = pool.means(pool.padded(x, 0))
    volume = math.prod(pool.kernel)
    if divisor_override is not None:
        return means * (volume / divisor_override)
    ones = torch.ones(1, 1, *x.shape[-pool.rank :], dtype=x.dtype)
    if count_include_pad:
        ones = torch.constant_pad_nd(ones, pool.sides(), 1)
        shares = pool.means(torch.constant_pad_nd(ones, pool.beyond(x)))
    else:
        shares = pool.means(pool.padded(ones, 0))
    return means / shares.reshape(shares.shape[-pool.rank :])


def needs_averages(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    ceil_mode: bool = False,  # noqa: FBT001, FBT002 - torch's
    count_include_pad: bool = True,  # noqa: FBT001, FBT002, ARG001 - torch's
    divisor_override: int | None = None,
) -> bool:
    """Say whether a mean is divided by a number of its own, or windows reach beyond the padding."""
    pool = _Pool.of(kernel_size, stride, padding, 1, ceil_mode=ceil_mode)
    return divisor_override is not None or (ceil_mode and any(pool.beyond(x)))


def has_known_windows(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),  # noqa: ARG001
    padding: Sequence[int] = (0,),  # noqa: ARG001
    ceil_mode: bool = False,  # noqa: FBT001, FBT002 - torch's
    *_: object,
) -> bool:
    """Say whether the windows' number is known where it is rounded up."""
    return not ceil_mode or all(isinstance(size, int) for size in x.shape[-len(kernel_size) :])


def maximum_with_places(
    x: torch.Tensor,
    kernel_size: Sequence[int],
    stride: Sequence[int] = (),
    padding: Sequence[int] = (0,),
    dilation: Sequence[int] = (1,),
    ceil_mode: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> tuple[torch.Tensor, torch.Tensor]:
    """`F.max_pool1d`, `2d` and `3d` with the places of the maxima in the flattened image."""
    pool = _Pool.of(kernel_size, stride, padding, dilation, ceil_mode=ceil_mode)
    sizes = x.shape[-pool.rank :]
    padded = pool.padded(x.reshape(-1, *sizes), -torch.inf)
    counts = [pool.count(axis, size) for axis, size in enumerate(sizes)]
    windows = []
    for place in itertools.product(*map(range, pool.kernel)):
        window = padded
        for axis, (at, count) in enumerate(zip(place, counts, strict=True), 1):
            first, step = at * pool.dilation[axis - 1], pool.stride[axis - 1]
            last = first + (count - 1) * step + 1
            window = torch.ops.aten.slice(window, axis, first, last, step)
        windows.append(window)
    stacked = torch.stack(windows, -1)
    chosen = stacked.argmax(-1)
    places, block, left = torch.zeros_like(chosen), 1, chosen
    for axis in reversed(range(pool.rank)):
        kernel = pool.kernel[axis]
        at = left % kernel * pool.dilation[axis] - pool.padding[axis]
        starts = torch.arange(counts[axis]) * pool.stride[axis]
        places = places + (at + starts.reshape(-1, *[1] * (pool.rank - 1 - axis))) * block
        left, block = left // kernel, block * sizes[axis]
    shape = [*x.shape[: -pool.rank], *counts]
    return stacked.amax(-1).reshape(shape), places.reshape(shape)


class _Pool:
    """Windows along the last axes."""

    def __init__(self, numbers: Sequence[Sequence[int]], *, ceil_mode: bool) -> None:
        self.kernel, self.stride, self.padding, self.dilation = numbers
        self.ceil_mode, self.rank = ceil_mode, len(self.kernel)

    @classmethod
    def of(
        cls,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int] | int,
        dilation: Sequence[int] | int,
        *,
        ceil_mode: bool,
    ) -> "_Pool":
        """Read torch's arguments, of which one number may apply to all axes."""
        rank = len(kernel_size)
        given = (kernel_size, stride or kernel_size, padding, dilation)
        lists = [list(each) if isinstance(each, Sequence) else [each] for each in given]
        return cls([each * (rank // len(each)) for each in lists], ceil_mode=ceil_mode)

    def count(self, axis: int, size: int) -> int:
        """Return the number of windows along an axis, as torch's `pooling_output_shape`."""
        whole = size + 2 * self.padding[axis] - self.dilation[axis] * (self.kernel[axis] - 1) - 1
        if not self.ceil_mode:
            return whole // self.stride[axis] + 1
        count = -(-whole // self.stride[axis]) + 1
        starts_beyond = (count - 1) * self.stride[axis] >= size + self.padding[axis]
        return count - 1 if starts_beyond else count

    def beyond(self, x: torch.Tensor) -> list[int]:
        """Return, as `F.pad` takes it, by how much windows reach beyond the padding."""
        sides = []
        for axis in reversed(range(self.rank)):
            size, more = x.shape[axis - self.rank], 0
            if self.ceil_mode and isinstance(size, int):
                reach = (self.count(axis, size) - 1) * self.stride[axis] + 1
                reach += self.dilation[axis] * (self.kernel[axis] - 1)
                more = max(reach - size - 2 * self.padding[axis], 0)
            sides += [0, more]
        return sides

    def sides(self) -> list[int]:
        """Return the padding as `F.pad` takes it."""
        return [side for each in reversed(self.padding) for side in (each, each)]

    def padded(self, x: torch.Tensor, value: float) -> torch.Tensor:
        """Return a tensor with all that windows reach."""
        sides = [one + more for one, more in zip(self.sides(), self.beyond(x), strict=True)]
        return torch.constant_pad_nd(x, sides, value) if any(sides) else x

    def means(self, x: torch.Tensor) -> torch.Tensor:
        """Return the means of windows without padding."""
        pool = (torch.avg_pool1d, torch._C._nn.avg_pool2d, torch._C._nn.avg_pool3d)[self.rank - 1]  # noqa: SLF001 - as torch.nn.functional
        return pool(x, self.kernel, self.stride)
