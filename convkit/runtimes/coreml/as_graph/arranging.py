"""Operations that move elements, as ONNX nodes. Sizes are those of the case."""

import numpy as np
from onnx import TensorProto

from convkit.worker.cause.other_formats import common_operations
from convkit.worker.cause.other_formats.operation_writing import NotTranslatedError, SourceOperation
from convkit.worker.cause.other_formats.source_model import Translation

_PADDING = {"constant": "constant", "reflect": "reflect", "replicate": "edge"}
_LAST = np.iinfo(np.int64).max


def _transpose(op: SourceOperation) -> None:
    perm = [axis % op.value("x").ndim for axis in op.integers("perm")]
    op.write("Transpose", op.tensor("x"), attributes={"perm": perm})


def _concat(op: SourceOperation) -> None:
    if op.flag("interleave"):
        raise NotTranslatedError("interleaved")
    axis = op.integer("axis")
    parts = []
    for place, name in enumerate(op.tensors("values")):
        scalar = op.values[name].ndim == 0
        shape = op.whole(f"one {place}", [1]) if scalar else ""
        to = op.inner(f"part {place}")
        parts.append(op.write("Reshape", name, shape, to=to) if scalar else name)
    op.write("Concat", *parts, attributes={"axis": axis})


def _stack(op: SourceOperation) -> None:
    axis = op.integer("axis")
    axes = op.whole("axes", [axis])
    parts = [
        op.write("Unsqueeze", name, axes, to=op.inner(f"part {place}"))
        for place, name in enumerate(op.tensors("values"))
    ]
    op.write("Concat", *parts, attributes={"axis": axis})


def _tile(op: SourceOperation) -> None:
    op.write("Tile", op.tensor("x"), op.whole("times", op.integers("reps")))


def _reverse(op: SourceOperation) -> None:
    axes = op.integers("axes") if op.has("axes") else list(range(op.value("x").ndim))
    _sliced(op, op.tensor("x"), axes, [-1] * len(axes), [-_LAST] * len(axes), [-1] * len(axes))


def _pad(op: SourceOperation) -> None:
    flat, rank = op.integers("pad"), op.value("x").ndim
    pairs = [(0, 0)] * (rank - len(flat) // 2) + list(zip(flat[::2], flat[1::2], strict=True))
    pads = op.whole("pads", [pair[0] for pair in pairs] + [pair[1] for pair in pairs])
    mode = op.text("mode", "constant")
    value = op.constant("value", np.asarray(op.value("constant_val"), op.value("x").dtype))
    filled = [value] if mode == "constant" else []
    op.write("Pad", op.tensor("x"), pads, *filled, attributes={"mode": _PADDING[mode]})


def _sliced(
    op: SourceOperation,
    name: str,
    axes: list[int],
    begins: list[int],
    ends: list[int],
    steps: list[int],
) -> None:
    numbers = {"begins": begins, "ends": ends, "axes": axes, "steps": steps}
    op.write("Slice", name, *(op.whole(key, each) for key, each in numbers.items()))


def _crop(op: SourceOperation) -> None:
    sides = zip(op.integers("crop_height"), op.integers("crop_width"), strict=True)
    begins, after = (list(each) for each in sides)
    ends = [s - cut for s, cut in zip(op.value("x").shape[-2:], after, strict=True)]
    rank = op.value("x").ndim
    _sliced(op, op.tensor("x"), [rank - 2, rank - 1], begins, ends, [1, 1])


def _slice_by_index(op: SourceOperation) -> None:
    shape, rank = op.value("x").shape, op.value("x").ndim
    flags = {
        name: [bool(each) for each in op.value(name).reshape(-1)]
        if op.has(name)
        else [False] * rank
        for name in ("begin_mask", "end_mask", "squeeze_mask")
    }
    steps = op.integers("stride") if op.has("stride") else [1] * rank
    begins, ends = op.integers("begin"), op.integers("end")
    for axis in range(rank):
        if flags["squeeze_mask"][axis]:
            begin = begins[axis] % shape[axis]
            begins[axis], ends[axis], steps[axis] = begin, begin + 1, 1
            continue
        if flags["begin_mask"][axis]:
            begins[axis] = 0 if steps[axis] > 0 else _LAST
        if flags["end_mask"][axis]:
            ends[axis] = _LAST if steps[axis] > 0 else -_LAST
    gone = [axis for axis, drop in enumerate(flags["squeeze_mask"]) if drop]
    # Only the axes that are cut: a change of any other would be no candidate.
    cut = [a for a in range(rank) if (begins[a], ends[a], steps[a]) != (0, _LAST, 1)] or [0]
    part = [op.whole(f"{n}", [each[a] for a in cut]) for n, each in
            {"begins": begins, "ends": ends}.items()]  # fmt: skip
    rest = [op.whole("axes", cut), op.whole("steps", [steps[a] for a in cut])]
    sliced = op.write("Slice", op.tensor("x"), *part, *rest, to=op.inner("cut") if gone else None)
    if gone:
        op.write("Squeeze", sliced, op.whole("dropped", gone))


def _slice_by_size(op: SourceOperation) -> None:
    shape = op.value("x").shape
    begins = [b % max(size, 1) for b, size in zip(op.integers("begin"), shape, strict=True)]
    ends = [begin + size for begin, size in zip(begins, op.result().shape, strict=True)]
    _sliced(op, op.tensor("x"), list(range(len(shape))), begins, ends, [1] * len(shape))


def _gather(op: SourceOperation) -> None:
    if op.integer("batch_dims", 0):
        raise NotTranslatedError("batch_dims")
    op.write("Gather", op.tensor("x"), _indices(op), attributes={"axis": op.integer("axis", 0)})


def _indices(op: SourceOperation) -> str:
    """Return the indices in a type that ONNX takes."""
    name = op.tensor("indices")
    if op.value("indices").dtype in (np.int32, np.int64):
        return name
    return op.write("Cast", name, to=op.inner("indices"), attributes={"to": TensorProto.INT64})


def _gather_along_axis(op: SourceOperation) -> None:
    keys = {"axis": op.integer("axis", 0)}
    op.write("GatherElements", op.tensor("x"), _indices(op), attributes=keys)


def _gather_nd(op: SourceOperation) -> None:
    wide = op.write(
        "Cast", op.tensor("indices"), to=op.inner("indices"), attributes={"to": TensorProto.INT64}
    )
    keys = {"batch_dims": op.integer("batch_dims", 0)}
    op.write("GatherND", op.tensor("x"), wide, attributes=keys)


def _topk(op: SourceOperation) -> None:
    axis = op.integer("axis", -1)
    count = op.whole("k", [op.result().shape[axis]])
    places = op.inner("places")
    keys = {"axis": axis, "largest": int(not op.flag("ascending"))}
    op.write("TopK", op.tensor("x"), count, to=(op.out, places), attributes=keys)
    if len(op.results) > 1:
        op.write("Cast", places, to=op.results[1], attributes={"to": TensorProto.INT32})


def _fill(op: SourceOperation) -> None:
    op.write("Expand", op.tensor("value"), op.whole("shape", op.result().shape))


def _pixel_shuffle(op: SourceOperation) -> None:
    size = op.integer("upscale_factor")
    op.write("DepthToSpace", op.tensor("x"), attributes={"blocksize": size, "mode": "CRD"})


def _nearest(op: SourceOperation) -> None:
    _resized(op, "nearest", "asymmetric", nearest_mode="floor")


def _upsample_bilinear(op: SourceOperation) -> None:
    corners = not op.has("align_corners") or op.flag("align_corners")
    centers = op.flag("half_pixel_centers") if op.has("half_pixel_centers") else not corners
    grid = "align_corners" if corners else "half_pixel" if centers else "asymmetric"
    _resized(op, "linear", grid)


def _resize_bilinear(op: SourceOperation) -> None:
    grids = {
        "STRICT_ALIGN_CORNERS": "align_corners",
        "ALIGN_CORNERS": "align_corners",
        "UNALIGN_CORNERS": "half_pixel",
        "DEFAULT": "asymmetric",
    }
    mode = op.text("sampling_mode", "DEFAULT")
    if mode not in grids:
        raise NotTranslatedError(mode)
    _resized(op, "linear", grids[mode])


def _resize(op: SourceOperation) -> None:
    if op.text("interpolation_mode", "LINEAR") == "LINEAR":
        _resize_bilinear(op)
    elif op.text("sampling_mode", "DEFAULT") == "DEFAULT":
        _nearest(op)
    else:
        raise NotTranslatedError("the nearest neighbor of another grid")


def _resized(op: SourceOperation, mode: str, grid: str, **more: str) -> None:
    sizes = op.whole("sizes", op.result().shape)
    keys = {"mode": mode, "coordinate_transformation_mode": grid, **more}
    op.write("Resize", op.tensor("x"), "", "", sizes, attributes=keys)


def _range(op: SourceOperation) -> None:
    op.write("Range", *(op.tensor(name) for name in ("start", "end", "step")))


ARRANGING: dict[str, Translation] = {
    "concat": _concat,
    "crop": _crop,
    "expand_dims": common_operations.unsqueeze("x", "axes"),
    "fill": _fill,
    "fill_like": _fill,
    "gather": _gather,
    "gather_along_axis": _gather_along_axis,
    "gather_nd": _gather_nd,
    "pad": _pad,
    "pixel_shuffle": _pixel_shuffle,
    "range_1d": _range,
    "reshape": common_operations.reshape("x"),
    "resize": _resize,
    "resize_bilinear": _resize_bilinear,
    "resize_nearest_neighbor": _nearest,
    "reverse": _reverse,
    "slice_by_index": _slice_by_index,
    "slice_by_size": _slice_by_size,
    "split": common_operations.split("x", "axis"),
    "squeeze": common_operations.squeeze("x", "axes"),
    "stack": _stack,
    "tile": _tile,
    "topk": _topk,
    "transpose": _transpose,
    "upsample_bilinear": _upsample_bilinear,
    "upsample_nearest_neighbor": _nearest,
}
