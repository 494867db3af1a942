"""Convolutions and pooling over one to three spatial axes; tensors are [batch,
channels, *spatial].
"""

import itertools
import math
from collections.abc import Iterator, Sequence

import torch
from torch.nn import functional

from convkit.worker.mil.kernels.operation_call import OperationCall
from convkit.worker.mil.program_errors import EvaluationError

_CONVOLUTIONS = {1: functional.conv1d, 2: functional.conv2d, 3: functional.conv3d}
_TRANSPOSED = {
    1: functional.conv_transpose1d,
    2: functional.conv_transpose2d,
    3: functional.conv_transpose3d,
}
_MAX_POOLS = {1: functional.max_pool1d, 2: functional.max_pool2d, 3: functional.max_pool3d}
_AVERAGE_POOLS = {1: functional.avg_pool1d, 2: functional.avg_pool2d, 3: functional.avg_pool3d}

# How many elements of a convolution's windows are copied at once: 64 MiB in float64.
_MOST_COPIED = 1 << 23


def conv(call: OperationCall) -> torch.Tensor:
    """Convolution with `weight` of shape [out, in / groups, *kernel]."""
    x, weight, groups = call.tensor("x"), call.tensor("weight"), call.integer("groups")
    strides, dilations = call.integers("strides"), call.integers("dilations")
    pads = _pads(call, x.shape[2:], weight.shape[2:], strides, dilations)
    padded = functional.pad(x, _reversed(pads)) if any(map(any, pads)) else x
    if groups == x.shape[1]:
        return _depthwise(padded, weight, call.optional("bias"), strides, dilations)
    parts = [
        _CONVOLUTIONS[x.dim() - 2](
            part, weight, call.optional("bias"), strides, 0, dilations, groups
        )
        for part in _parts(padded, weight, strides, dilations)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts, 2)


def _depthwise(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    strides: list[int],
    dilations: list[int],
) -> torch.Tensor:
    """Convolve each channel on its own. torch loops over the channels in float64."""
    x = x.repeat_interleave(len(weight) // x.shape[1], 1) if len(weight) > x.shape[1] else x
    sizes = _sizes(x, weight, strides, dilations)
    each_channel = [1, -1, *[1] * len(sizes)]
    total = x.new_zeros(len(x), len(weight), *sizes)
    for place in itertools.product(*map(range, weight.shape[2:])):
        taken = [
            slice(at * dilation, at * dilation + (size - 1) * stride + 1, stride)
            for at, size, stride, dilation in zip(place, sizes, strides, dilations, strict=True)
        ]
        total.addcmul_(x[:, :, *taken], weight[:, 0, *place].reshape(each_channel))
    return total if bias is None else total + bias.reshape(each_channel)


def _parts(
    x: torch.Tensor, weight: torch.Tensor, strides: list[int], dilations: list[int]
) -> Iterator[torch.Tensor]:
    """Yield the parts of `x` that give some rows of the result each: torch copies every window in
    float64, which a whole image may not fit in memory for.
    """
    count, *others = _sizes(x, weight, strides, dilations)
    if weight[0, 0].numel() == 1:
        yield x
        return
    per_row = len(x) * x.shape[1] * weight[0, 0].numel() * math.prod(others)
    rows = max(1, _MOST_COPIED // max(per_row, 1))
    reach = (weight.shape[2] - 1) * dilations[0] + 1
    for first in range(0, max(count, 1), rows):
        last = min(first + rows, count) - 1
        yield x[:, :, first * strides[0] : last * strides[0] + reach] if count > rows else x


def _sizes(
    x: torch.Tensor, weight: torch.Tensor, strides: list[int], dilations: list[int]
) -> list[int]:
    """Return the spatial sizes of a convolution's result."""
    return [
        (size - (width - 1) * dilation - 1) // stride + 1
        for size, width, stride, dilation in zip(
            x.shape[2:], weight.shape[2:], strides, dilations, strict=True
        )
    ]


def conv_transpose(call: OperationCall) -> torch.Tensor:
    """Transposed convolution with `weight` of shape [in, out / groups, *kernel], cropped by the
    padding.

    `output_shape` resolves sizes that strides leave ambiguous: elements missing at the end are the
    bias alone.
    """
    x, weight = call.tensor("x"), call.tensor("weight")
    strides, dilations = call.integers("strides"), call.integers("dilations")
    full = _TRANSPOSED[x.dim() - 2](
        x, weight, None, strides, 0, 0, call.integer("groups"), dilations
    )
    wanted = call.optional_integers("output_shape")
    kind = call.text("pad_type", "valid")
    if kind == "custom":
        flat = call.integers("pad")
        pads = list(zip(flat[::2], flat[1::2], strict=True))
    elif kind == "valid":
        pads = [(0, 0)] * len(strides)
    else:
        pads = _same_transposed(kind, full.shape[2:], x.shape[2:], strides)
    cut = functional.pad(full, _reversed([(-before, -after) for before, after in pads]))
    if wanted is not None:
        missing = [size - have for size, have in zip(wanted[2:], cut.shape[2:], strict=True)]
        # Restore elements cropped by `pad` before adding zeros.
        kept = [
            (-before, -after + more) for (before, after), more in zip(pads, missing, strict=True)
        ]
        cut = functional.pad(full, _reversed(kept))
    bias = call.optional("bias")
    return cut if bias is None else cut + bias.reshape(1, -1, *[1] * len(strides))


def max_pool(call: OperationCall) -> torch.Tensor:
    """Maximum of each window; padding is never selected."""
    x = call.tensor("x")
    kernel, strides, pads = _window(call, x)
    return _MAX_POOLS[len(kernel)](
        functional.pad(x, _reversed(pads), value=-math.inf), kernel, strides
    )


def avg_pool(call: OperationCall) -> torch.Tensor:
    """Mean of each window; padding counts as zeros, or is ignored with
    `exclude_padding_from_average`.
    """
    x = call.tensor("x")
    kernel, strides, pads = _window(call, x)
    pool = _AVERAGE_POOLS[len(kernel)]
    mean = pool(functional.pad(x, _reversed(pads)), kernel, strides)
    counted = torch.ones_like(x[:1, :1])
    if not call.flag("exclude_padding_from_average"):
        counted = functional.pad(
            counted, _reversed(_declared_pads(call, x, kernel, strides)), value=1.0
        )
        pads = [
            (before - own_before, after - own_after)
            for (before, after), (own_before, own_after) in zip(
                pads, _declared_pads(call, x, kernel, strides), strict=True
            )
        ]
    return mean / pool(functional.pad(counted, _reversed(pads)), kernel, strides)


def l2_pool(call: OperationCall) -> torch.Tensor:
    """Square root of the sum of squares in each window."""
    x = call.tensor("x")
    kernel, strides, pads = _window(call, x)
    means = _AVERAGE_POOLS[len(kernel)](
        functional.pad(x.square(), _reversed(pads)), kernel, strides
    )
    return torch.sqrt(means * math.prod(kernel))


def _window(
    call: OperationCall, x: torch.Tensor
) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    """Return a pool's kernel, strides and padding; rounding sizes up becomes padding at the end.

    As in torch, a window that would start in the padding at the end is dropped.
    """
    kernel, strides = call.integers("kernel_sizes"), call.integers("strides")
    pads = _declared_pads(call, x, kernel, strides)
    if not call.flag("ceil_mode"):
        return kernel, strides, pads
    rounded = []
    for size, window, stride, (before, after) in zip(
        x.shape[2:], kernel, strides, pads, strict=True
    ):
        count = math.ceil((size + before + after - window) / stride) + 1
        if (count - 1) * stride >= size + before:
            count -= 1
        rounded.append((before, max(after, (count - 1) * stride + window - size - before)))
    return kernel, strides, rounded


def _declared_pads(
    call: OperationCall, x: torch.Tensor, kernel: list[int], strides: list[int]
) -> list[tuple[int, int]]:
    return _pads(call, x.shape[2:], kernel, strides, [1] * len(kernel))


def _pads(
    call: OperationCall,
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: list[int],
    dilations: list[int],
) -> list[tuple[int, int]]:
    """Return the padding before and after each spatial axis."""
    kind = call.text("pad_type", "valid").lower()
    if kind == "valid":
        return [(0, 0)] * len(strides)
    if kind == "custom":
        flat = call.integers("pad")
        return list(zip(flat[::2], flat[1::2], strict=True))
    if kind not in ("same", "same_lower"):
        raise EvaluationError(f"unknown padding {kind}")
    pads = []
    for size, width, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        reach = (width - 1) * dilation + 1
        total = max((math.ceil(size / stride) - 1) * stride + reach - size, 0)
        pads.append(
            (total // 2, total - total // 2) if kind == "same" else (total - total // 2, total // 2)
        )
    return pads


def _same_transposed(
    kind: str, full: Sequence[int], sizes: Sequence[int], strides: list[int]
) -> list[tuple[int, int]]:
    """Return the crop that makes each output size the input's times its stride."""
    if kind not in ("same", "same_lower"):
        raise EvaluationError(f"unknown padding {kind}")
    totals = [have - size * stride for have, size, stride in zip(full, sizes, strides, strict=True)]
    halves = [(total // 2, total - total // 2) for total in totals]
    return halves if kind == "same" else [(after, before) for before, after in halves]


def _reversed(pads: Sequence[tuple[int, int]]) -> list[int]:
    """Return padding in torch's order: last axis first."""
    return [each for pair in reversed(pads) for each in pair]
