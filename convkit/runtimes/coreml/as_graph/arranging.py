"""Operations that move elements, as ONNX nodes. Sizes are those of the case."""

import numpy as np

from convkit.worker.cause.other_formats import shared_translations as shared
from convkit.worker.cause.other_formats.source_operation import (
    NotTranslatedError,
    SourceOperation,
    Translation,
)
from convkit.worker.graph.operators.composed_operators import LAST, resized, stacked, strided_slice

_PADDING = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
_GRIDS = {
    "strict_align_corners": "align_corners",
    "align_corners": "align_corners",
    "unalign_corners": "half_pixel",
    "default": "asymmetric",
}


def _transpose(op: SourceOperation) -> None:
    perm = [axis % op.value("x").ndim for axis in op.integers("perm")]
    op.write("Transpose", op.tensor("x"), perm=perm)


def _concat(op: SourceOperation) -> None:
    parts = [
        op.write("Reshape", name, [1], inner=f"part {place}") if op.values[name].ndim == 0 else name
        for place, name in enumerate(op.tensors("values"))
    ]
    op.write("Concat", *parts, axis=op.integer("axis"))


def _reverse(op: SourceOperation) -> None:
    axes = op.integers("axes", range(op.value("x").ndim))
    back, last = [-1] * len(axes), [-LAST] * len(axes)
    op.write("Slice", op.tensor("x"), back, last, axes, back)


def _pad(op: SourceOperation) -> None:
    flat, rank = op.integers("pad"), op.value("x").ndim
    pairs = [(0, 0)] * (rank - len(flat) // 2) + list(zip(flat[::2], flat[1::2], strict=True))
    pads = [pair[0] for pair in pairs] + [pair[1] for pair in pairs]
    mode = op.one_of(_PADDING, "mode", "constant")
    value = op.constant("value", np.asarray(op.value("constant_val"), op.value("x").dtype))
    op.write("Pad", op.tensor("x"), pads, *([value] if mode == "constant" else []), mode=mode)


def _crop(op: SourceOperation) -> None:
    begins, after = zip(op.integers("crop_height"), op.integers("crop_width"), strict=True)
    shape = op.shape("x")
    ends = [size - cut for size, cut in zip(shape[-2:], after, strict=True)]
    op.write("Slice", op.tensor("x"), begins, ends, [len(shape) - 2, len(shape) - 1], [1, 1])


def _slice_by_index(op: SourceOperation) -> None:
    rank = op.value("x").ndim
    masks = {
        key: {axis for axis, each in enumerate(op.integers(f"{name}_mask", [])) if each}
        for key, name in {"from_start": "begin", "to_end": "end", "dropped": "squeeze"}.items()
    }
    cuts = op.integers("begin"), op.integers("end"), op.integers("stride", [1] * rank)
    strided_slice(op, op.tensor("x"), op.shape("x"), cuts, **masks)


def _slice_by_size(op: SourceOperation) -> None:
    shape = op.shape("x")
    begins = [b % max(size, 1) for b, size in zip(op.integers("begin"), shape, strict=True)]
    ends = [begin + size for begin, size in zip(begins, op.result().shape, strict=True)]
    op.write("Slice", op.tensor("x"), begins, ends, [*range(len(shape))], [1] * len(shape))


def _topk(op: SourceOperation) -> None:
    axis, made = op.integer("axis", -1), (op.out, op.inner("places"))
    count, largest = [op.result().shape[axis]], int(not op.flag("ascending"))
    op.write("TopK", op.tensor("x"), count, outputs=made, axis=axis, largest=largest)
    if len(op.results) > 1:
        op.cast(made[1], to=op.results[1], place=1)


def _nearest(op: SourceOperation) -> None:
    keys = {"mode": "nearest", "nearest_mode": "floor"}
    resized(op, op.tensor("x"), op.result().shape, "asymmetric", keys)


def _upsample_bilinear(op: SourceOperation) -> None:
    corners = not op.has("align_corners") or op.flag("align_corners")
    centers = op.flag("half_pixel_centers") if op.has("half_pixel_centers") else not corners
    grid = "align_corners" if corners else "half_pixel" if centers else "asymmetric"
    resized(op, op.tensor("x"), op.result().shape, grid, {"mode": "linear"})


def _resize_bilinear(op: SourceOperation) -> None:
    grid = op.one_of(_GRIDS, "sampling_mode", "default")
    resized(op, op.tensor("x"), op.result().shape, grid, {"mode": "linear"})


def _resize(op: SourceOperation) -> None:
    if op.text("interpolation_mode", "linear") == "linear":
        _resize_bilinear(op)
    elif op.text("sampling_mode", "default") == "default":
        _nearest(op)
    else:
        raise NotTranslatedError("the nearest neighbor of another grid")


ARRANGING: dict[str, Translation] = {
    "concat": shared.unless("interleave", _concat),
    "crop": _crop,
    "expand_dims": shared.unsqueeze("x", "axes"),
    "fill": shared.reshaped("value", "Expand"),
    "fill_like": shared.reshaped("value", "Expand"),
    "gather": shared.unless("batch_dims", "Gather(x, indices, axis=axis)"),
    "gather_along_axis": "GatherElements(x, indices, axis=axis)",
    "gather_nd": "GatherND(x, indices, batch_dims=batch_dims)",
    "pad": _pad,
    "pixel_shuffle": 'DepthToSpace(x, blocksize=upscale_factor, mode="CRD")',
    "range_1d": "Range(start, end, step)",
    "reshape": shared.reshaped("x"),
    "resize": _resize,
    "resize_bilinear": _resize_bilinear,
    "resize_nearest_neighbor": _nearest,
    "reverse": _reverse,
    "slice_by_index": _slice_by_index,
    "slice_by_size": _slice_by_size,
    "split": shared.split("x", "axis"),
    "squeeze": shared.squeeze("x", "axes"),
    "stack": lambda op: stacked(op, op.tensors("values"), op.integer("axis")),
    "tile": "Tile(x, reps)",
    "topk": _topk,
    "transpose": _transpose,
    "upsample_bilinear": _upsample_bilinear,
    "upsample_nearest_neighbor": _nearest,
}
