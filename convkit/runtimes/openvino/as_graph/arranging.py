"""Operations that move elements, as ONNX nodes. Sizes are those of the case."""

import numpy as np
from onnx import TensorProto, helper

from convkit.worker.cause.other_formats import common_operations
from convkit.worker.cause.other_formats.operation_writing import NotTranslatedError, SourceOperation
from convkit.worker.cause.other_formats.source_model import Translation

_LAST = np.iinfo(np.int64).max
_REDUCED = {"none": "none", "sum": "add", "prod": "mul", "min": "min", "max": "max"}


def _axis(op: SourceOperation, place: str) -> dict[str, int]:
    return {"axis": op.integer(place)}


def _transpose(op: SourceOperation) -> None:
    perm = op.integers("1") or list(reversed(range(op.value("0").ndim)))
    op.write("Transpose", op.tensor("0"), attributes={"perm": perm})


def _concat(op: SourceOperation) -> None:
    parts = [op.tensor(str(place)) for place in range(len(op.arguments))]
    op.write("Concat", *parts, attributes={"axis": int(op.settings["axis"])})


def _expand(op: SourceOperation) -> None:
    if op.text("mode", "numpy").lower() == "explicit":
        raise NotTranslatedError("explicit axes")
    op.write("Expand", op.tensor("0"), op.whole("shape", op.result().shape))


def _tile(op: SourceOperation) -> None:
    rank, times = op.result().ndim, op.integers("1")
    if op.value("0").ndim != rank:
        raise NotTranslatedError("more repeats than axes")
    op.write("Tile", op.tensor("0"), op.whole("times", [1] * (rank - len(times)) + times))


def _pad(op: SourceOperation) -> None:
    pads = op.whole("pads", [*op.integers("1"), *op.integers("2")])
    mode = op.text("pad_mode", "constant").lower()
    kind = op.value("0").dtype
    filled = op.value("3").astype(kind) if op.has("3") else np.zeros((), kind)
    value = [op.constant("value", filled)] if mode == "constant" else []
    if mode == "symmetric":
        raise NotTranslatedError(mode)
    op.write("Pad", op.tensor("0"), pads, *value, attributes={"mode": mode})


def _slice(op: SourceOperation) -> None:
    begins, ends, steps = (op.integers(place) for place in ("1", "2", "3"))
    axes = op.integers("4") if op.has("4") else list(range(len(begins)))
    _sliced(op, axes, begins, ends, steps)


def _sliced(
    op: SourceOperation,
    axes: list[int],
    begins: list[int],
    ends: list[int],
    steps: list[int],
    to: str | None = None,
) -> str:
    numbers = {"begins": begins, "ends": ends, "axes": axes, "steps": steps}
    given = (op.whole(key, each) for key, each in numbers.items())
    return op.write("Slice", op.tensor("0"), *given, to=to)


def _strided_slice(op: SourceOperation) -> None:
    masks = {
        name: [int(each) for each in op.settings.get(f"{name}_mask", [])]
        for name in ("begin", "end", "new_axis", "shrink_axis", "ellipsis")
    }
    if any(masks["new_axis"]) or any(masks["ellipsis"]):
        raise NotTranslatedError("new axes")
    begins, ends = op.integers("1"), op.integers("2")
    steps = op.integers("3") if op.has("3") else [1] * len(begins)
    shape, gone = op.value("0").shape, []
    for axis in range(len(begins)):
        if _set(masks["shrink_axis"], axis):
            begin = begins[axis] % shape[axis]
            begins[axis], ends[axis], steps[axis] = begin, begin + 1, 1
            gone.append(axis)
            continue
        if _set(masks["begin"], axis):
            begins[axis] = 0 if steps[axis] > 0 else _LAST
        if _set(masks["end"], axis):
            ends[axis] = _LAST if steps[axis] > 0 else -_LAST
    # Only the axes that are cut: a change of any other would be no candidate.
    axes = range(len(begins))
    cut = [a for a in axes if (begins[a], ends[a], steps[a]) != (0, _LAST, 1)] or [0]
    begins, ends, steps = ([each[axis] for axis in cut] for each in (begins, ends, steps))
    sliced = _sliced(op, cut, begins, ends, steps, to=op.inner("cut") if gone else None)
    if gone:
        op.write("Squeeze", sliced, op.whole("dropped", gone))


def _set(mask: list[int], axis: int) -> bool:
    return axis < len(mask) and bool(mask[axis])


def _gather(op: SourceOperation) -> None:
    if int(op.settings.get("batch_dims", 0)):
        raise NotTranslatedError("batch_dims")
    op.write("Gather", op.tensor("0"), _indices(op), attributes=_axis(op, "2"))


def _indices(op: SourceOperation) -> str:
    """Return the indices in a type that ONNX takes."""
    name = op.tensor("1")
    if op.value("1").dtype in (np.int32, np.int64):
        return name
    return op.write("Cast", name, to=op.inner("indices"), attributes={"to": TensorProto.INT64})


def _wide(op: SourceOperation) -> str:
    keys = {"to": TensorProto.INT64}
    return op.write("Cast", op.tensor("1"), to=op.inner("indices"), attributes=keys)


def _gather_elements(op: SourceOperation) -> None:
    keys = {"axis": int(op.settings["axis"])}
    op.write("GatherElements", op.tensor("0"), _indices(op), attributes=keys)


def _gather_nd(op: SourceOperation) -> None:
    keys = {"batch_dims": int(op.settings.get("batch_dims", 0))}
    op.write("GatherND", op.tensor("0"), _wide(op), attributes=keys)


def _scatter_elements(op: SourceOperation) -> None:
    reduction = _REDUCED[op.text("reduction", "none").lower()]
    if reduction != "none" and not op.settings.get("use_init_val", True):
        raise NotTranslatedError("without the initial values")
    keys = {**_axis(op, "3"), "reduction": reduction}
    op.write("ScatterElements", op.tensor("0"), _indices(op), op.tensor("2"), attributes=keys)


def _scatter_nd(op: SourceOperation) -> None:
    keys = {"reduction": _REDUCED[op.text("reduction", "none").lower()]}
    op.write("ScatterND", op.tensor("0"), _wide(op), op.tensor("2"), attributes=keys)


def _topk(op: SourceOperation) -> None:
    axis = int(op.settings["axis"])
    count = op.whole("k", [op.result().shape[axis]])
    places = op.inner("places")
    keys = {"axis": axis, "largest": int(op.text("mode", "max").lower() == "max")}
    op.write("TopK", op.tensor("0"), count, to=(op.out, places), attributes=keys)
    if len(op.results) > 1:
        kind = helper.np_dtype_to_tensor_dtype(op.result(1).dtype)
        op.write("Cast", places, to=op.results[1], attributes={"to": kind})


def _one_hot(op: SourceOperation) -> None:
    values = op.constant("values", np.stack([op.value("3"), op.value("2")]))
    keys = {"axis": int(op.settings["axis"])}
    op.write("OneHot", op.tensor("0"), op.tensor("1"), values, attributes=keys)


def _depth_to_space(op: SourceOperation) -> None:
    modes = {"blocks_first": "DCR", "depth_first": "CRD"}
    keys = {"blocksize": int(op.settings["block_size"]), "mode": modes[op.text("mode", "").lower()]}
    op.write("DepthToSpace", op.tensor("0"), attributes=keys)


def _space_to_depth(op: SourceOperation) -> None:
    if op.text("mode", "blocks_first").lower() != "blocks_first":
        raise NotTranslatedError("depth first")
    keys = {"blocksize": int(op.settings["block_size"])}
    op.write("SpaceToDepth", op.tensor("0"), attributes=keys)


def _range(op: SourceOperation) -> None:
    kind = op.result().dtype
    numbers = ("start", "stop", "step")
    given = [
        op.constant(name, op.value(str(place)).astype(kind).reshape(()))
        for place, name in enumerate(numbers)
    ]
    op.write("Range", *given)


ARRANGING: dict[str, Translation] = {
    "Broadcast": _expand,
    "Concat": _concat,
    "DepthToSpace": _depth_to_space,
    "Gather": _gather,
    "GatherElements": _gather_elements,
    "GatherND": _gather_nd,
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": common_operations.reshape("0"),
    "ScatterElementsUpdate": _scatter_elements,
    "ScatterNDUpdate": _scatter_nd,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": common_operations.split("0", "1"),
    "Squeeze": common_operations.squeeze("0", "1"),
    "StridedSlice": _strided_slice,
    "Tile": _tile,
    "TopK": _topk,
    "Transpose": _transpose,
    "Unsqueeze": common_operations.unsqueeze("0", "1"),
    "VariadicSplit": common_operations.split("0", "1"),
}
