"""Operations that rearrange elements without arithmetic: shapes, axes, joining, splitting,
repeating, padding.
"""

import math
from collections.abc import Sequence

import torch
from torch.nn import functional

from convkit.worker.mil.kernels.operation_call import OperationCall
from convkit.worker.mil.program_errors import EvaluationError

# Core ML refuses to load a program that pads others than the last two axes with what is there.
_MOST_REPEATED = 2


def reshape(call: OperationCall) -> torch.Tensor:
    """Reshape: 0 keeps the size of that axis, -1 is inferred."""
    x, wanted = call.tensor("x"), call.integers("shape")
    # If there is no such axis, or the tensor is empty, 0 must be a literal size.
    keeps = len(wanted) == x.dim() and x.numel() > 0
    return x.reshape(
        [x.shape[axis] if size == 0 and keeps else size for axis, size in enumerate(wanted)]
    )


def reshape_like(call: OperationCall) -> torch.Tensor:
    """Reshape to a shape assembled from parts of other tensors' shapes."""
    shape: list[int] = []
    begins, ends, masks = call.tensors("begins"), call.tensors("ends"), call.tensors("end_masks")
    for other, begin, end, mask in zip(
        call.tensors("ref_tensors"), begins, ends, masks, strict=True
    ):
        shape += other.shape[int(begin) :] if bool(mask) else other.shape[int(begin) : int(end)]
    return call.tensor("x").reshape(shape)


def transpose(call: OperationCall) -> torch.Tensor:
    """Permute the axes."""
    x = call.tensor("x")
    return x.permute(call.integers("perm")) if x.dim() else x


def expand_dims(call: OperationCall) -> torch.Tensor:
    """Insert axes of size 1; `axes` are positions in the result."""
    x, axes = call.tensor("x"), call.integers("axes")
    rank = x.dim() + len(axes)
    for axis in sorted(axis % rank for axis in axes):
        x = x.unsqueeze(axis)
    return x


def squeeze(call: OperationCall) -> torch.Tensor:
    """Drop axes of size 1: the named ones, or all. Named axes of other sizes stay."""
    x, axes = call.tensor("x"), call.optional_integers("axes")
    if axes is None:
        return x.squeeze()
    for axis in sorted({axis % x.dim() for axis in axes}, reverse=True):
        x = x.squeeze(axis)
    return x


def concat(call: OperationCall) -> torch.Tensor:
    """Join along an axis, sequentially or interleaved; scalars become one-element vectors."""
    parts = [part.reshape(1) if part.dim() == 0 else part for part in call.tensors("values")]
    axis = call.integer("axis")
    if not call.flag("interleave"):
        return torch.cat(parts, axis)
    axis %= parts[0].dim()
    return torch.stack(parts, axis + 1).flatten(axis, axis + 1)


def split(call: OperationCall) -> list[torch.Tensor]:
    """Split along an axis into given or equal sizes."""
    x, axis = call.tensor("x"), call.integer("axis")
    sizes = call.optional_integers("split_sizes")
    if sizes is not None:
        return list(torch.split(x, sizes, axis))
    count = call.integer("num_splits")
    if x.shape[axis] % count:
        raise EvaluationError(
            f"an axis of {x.shape[axis]} elements cannot be cut into {count} equal parts"
        )
    return list(torch.split(x, max(x.shape[axis] // count, 1), axis))


def filled(call: OperationCall, sizes: Sequence[int]) -> torch.Tensor:
    """Create a tensor filled with one value."""
    return call.tensor("value").reshape(()).expand(tuple(sizes)).clone()


def range_1d(call: OperationCall) -> torch.Tensor:
    """Count from `start` in increments of `step`, excluding `end`.

    Each value is computed from its index: adding increments would accumulate rounding errors.
    """
    start, end, step = call.tensor("start"), call.tensor("end"), call.tensor("step")
    if start.is_floating_point():
        count = math.ceil((end.double() - start.double()).item() / step.double().item())
        return start.double() + step.double() * torch.arange(max(count, 0))
    return torch.arange(int(start), int(end), int(step), dtype=start.dtype)


def flatten2d(call: OperationCall) -> torch.Tensor:
    """Flatten the axes before `axis` into one, and the remaining ones into another."""
    x = call.tensor("x")
    return x.reshape(
        math.prod(x.shape[: call.integer("axis")]), math.prod(x.shape[call.integer("axis") :])
    )


def reverse(call: OperationCall) -> torch.Tensor:
    """Reverse the named axes, or all."""
    x, axes = call.tensor("x"), call.optional_integers("axes")
    return torch.flip(x, axes if axes is not None else list(range(x.dim())))


def reverse_sequence(call: OperationCall) -> torch.Tensor:
    """Reverse the first `lengths[i]` elements along `seq_axis` of the i-th slice along
    `batch_axis`.
    """
    x, lengths = call.tensor("x"), call.tensor("lengths").long()
    moved = x.movedim((call.integer("batch_axis"), call.integer("seq_axis")), (0, 1))
    places = torch.arange(moved.shape[1]).expand(moved.shape[0], -1)
    source = torch.where(places < lengths[:, None], lengths[:, None] - 1 - places, places)
    turned = moved[torch.arange(moved.shape[0])[:, None], source]
    return turned.movedim((0, 1), (call.integer("batch_axis"), call.integer("seq_axis")))


def pad(call: OperationCall) -> torch.Tensor:
    """Pad the last axes; `pad` has before and after for each, in axis order."""
    x, flat = call.tensor("x"), call.integers("pad")
    pairs = list(zip(flat[::2], flat[1::2], strict=True))
    mode = call.text("mode", "constant")
    if mode == "constant":
        return functional.pad(
            x,
            [each for pair in reversed(pairs) for each in pair],
            value=call.number("constant_val"),
        )
    if any(map(any, pairs[:-_MOST_REPEATED])):
        raise EvaluationError(
            f"Core ML pads the last two axes only, unless with a constant: {pairs}"
        )
    for axis, (before, after) in enumerate(pairs, x.dim() - len(pairs)):
        x = x.index_select(axis, _padded_places(mode, x.shape[axis], before, after))
    return x


def _padded_places(mode: str, size: int, before: int, after: int) -> torch.Tensor:
    """Return the source indices for a padded axis; torch itself pads few ranks and never
    scalars.
    """
    places = torch.arange(-before, size + after)
    if mode == "replicate":
        return places.clamp(0, size - 1)
    if mode != "reflect":
        raise EvaluationError(f"unknown mode {mode}")
    if max(before, after) >= size:
        raise EvaluationError(
            f"an axis of {size} elements cannot be reflected by {max(before, after)}"
        )
    return (size - 1 - ((size - 1) - places.abs()).abs()) if size > 1 else places.clamp(0, 0)


def crop(call: OperationCall) -> torch.Tensor:
    """Crop both ends of the last two axes."""
    x = call.tensor("x")
    top, bottom = call.integers("crop_height")
    left, right = call.integers("crop_width")
    return x[..., top : x.shape[-2] - bottom, left : x.shape[-1] - right]


def sliding_windows(call: OperationCall) -> torch.Tensor:
    """Extract all windows along an axis, which indexes the windows afterwards; their elements get a
    new axis after it.
    """
    x = call.tensor("x")
    axis = call.integer("axis") % x.dim()
    return x.unfold(axis, call.integer("size"), call.integer("stride")).movedim(-1, axis + 1)


def depth_to_space(call: OperationCall) -> torch.Tensor:
    """Move channels into space; the position inside the block is the slowest-varying part of the
    channel.
    """
    x, block = call.tensor("x"), call.integer("block_size")
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, block, block, channels // block**2, height, width)
    return parts.permute(0, 3, 4, 1, 5, 2).reshape(
        batch, channels // block**2, height * block, width * block
    )


def space_to_depth(call: OperationCall) -> torch.Tensor:
    """Move space into channels; the position inside the block is the slowest-varying part of the
    channel.
    """
    x, block = call.tensor("x"), call.integer("block_size")
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, channels, height // block, block, width // block, block)
    return parts.permute(0, 3, 5, 1, 2, 4).reshape(
        batch, channels * block**2, height // block, width // block
    )


def space_to_batch(call: OperationCall) -> torch.Tensor:
    """Pad the last two axes, then move their blocks into the batch; the position inside the block
    varies slowest.
    """
    (rows, columns), (top, bottom, left, right) = (
        call.integers("block_shape"),
        call.integers("paddings"),
    )
    x = functional.pad(call.tensor("x"), (left, right, top, bottom))
    batch, channels, height, width = x.shape
    parts = x.reshape(batch, channels, height // rows, rows, width // columns, columns)
    return parts.permute(3, 5, 0, 1, 2, 4).reshape(
        batch * rows * columns, channels, height // rows, width // columns
    )


def batch_to_space(call: OperationCall) -> torch.Tensor:
    """Move blocks from the batch into the last two axes, then crop these."""
    x, (rows, columns) = call.tensor("x"), call.integers("block_shape")
    top, bottom, left, right = call.integers("crops")
    batch, channels, height, width = x.shape
    parts = x.reshape(rows, columns, batch // (rows * columns), channels, height, width)
    whole = parts.permute(2, 3, 4, 0, 5, 1).reshape(-1, channels, height * rows, width * columns)
    return whole[:, :, top : height * rows - bottom, left : width * columns - right]


def band_part(call: OperationCall) -> torch.Tensor:
    """Keep a band around the diagonal of the last two axes; a negative bound keeps everything on
    its side.
    """
    x, lower, upper = call.tensor("x"), call.integer("lower"), call.integer("upper")
    below = torch.arange(x.shape[-2])[:, None] - torch.arange(x.shape[-1])
    kept = ((below <= lower) | (lower < 0)) & ((-below <= upper) | (upper < 0))
    return torch.where(kept, x, torch.zeros_like(x))
