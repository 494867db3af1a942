"""Operations that move elements, as ONNX nodes. Sizes are those of the case."""

import numpy as np

from convkit.worker.cause.other_formats import shared_translations as shared
from convkit.worker.cause.other_formats.source_operation import (
    NotTranslatedError,
    SourceOperation,
    Translation,
)
from convkit.worker.graph.operators.composed_operators import strided_slice

_REDUCED = {"none": "none", "sum": "add", "prod": "mul", "min": "min", "max": "max"}
_PADDING = {each: each for each in ("constant", "edge", "reflect")}


def _transpose(op: SourceOperation) -> None:
    rank = op.value("x0").ndim
    op.write("Transpose", op.tensor("x0"), perm=op.integers("x1") or [*range(rank)][::-1])


def _expand(op: SourceOperation) -> None:
    if op.text("mode", "numpy") == "explicit":
        raise NotTranslatedError("explicit axes")
    op.write("Expand", op.tensor("x0"), op.result().shape)


def _tile(op: SourceOperation) -> None:
    rank, times = op.result().ndim, op.integers("x1")
    if op.value("x0").ndim != rank:
        raise NotTranslatedError("more repeats than axes")
    op.write("Tile", op.tensor("x0"), [1] * (rank - len(times)) + times)


def _pad(op: SourceOperation) -> None:
    mode = op.one_of(_PADDING, "pad_mode", "constant")
    kind = op.value("x0").dtype
    filled = op.value("x3").astype(kind) if op.has("x3") else np.zeros((), kind)
    value = [op.constant("value", filled)] if mode == "constant" else []
    pads = [*op.integers("x1"), *op.integers("x2")]
    op.write("Pad", op.tensor("x0"), pads, *value, mode=mode)


def _slice(op: SourceOperation) -> None:
    cuts = [op.integers(place) for place in ("x1", "x2", "x3")]
    axes = op.integers("x4", range(len(cuts[0])))
    op.write("Slice", op.tensor("x0"), *cuts[:2], axes, cuts[2])


def _strided_slice(op: SourceOperation) -> None:
    masks = {
        name: {axis for axis, each in enumerate(op.integers(f"{name}_mask", [])) if each}
        for name in ("begin", "end", "new_axis", "shrink_axis", "ellipsis")
    }
    if masks["new_axis"] or masks["ellipsis"]:
        raise NotTranslatedError("new axes")
    begins, ends = op.integers("x1"), op.integers("x2")
    strided_slice(
        op,
        op.tensor("x0"),
        op.shape("x0"),
        (begins, ends, op.integers("x3", [1] * len(begins))),
        from_start=masks["begin"],
        to_end=masks["end"],
        dropped={axis for axis in masks["shrink_axis"] if axis < len(begins)},
    )


def _scatter_elements(op: SourceOperation) -> None:
    reduction = op.one_of(_REDUCED, "reduction", "none")
    if reduction != "none" and not op.integer("use_init_val", 1):
        raise NotTranslatedError("without the initial values")
    op.compute(f"ScatterElements(x0, x1, x2, axis=x3, reduction={reduction!r})")


def _scatter_nd(op: SourceOperation) -> None:
    reduction = op.one_of(_REDUCED, "reduction", "none")
    op.compute(f"ScatterND(x0, x1, x2, reduction={reduction!r})")


def _topk(op: SourceOperation) -> None:
    axis, largest = op.integer("axis"), int(op.text("mode", "max") == "max")
    made = op.out, op.inner("places")
    count = [op.result().shape[axis]]
    op.write("TopK", op.tensor("x0"), count, outputs=made, axis=axis, largest=largest)
    if len(op.results) > 1:
        op.cast(made[1], to=op.results[1], place=1)


def _one_hot(op: SourceOperation) -> None:
    values = op.constant("values", np.stack([op.value("x3"), op.value("x2")]))
    op.compute("OneHot(x0, x1, values, axis=axis)", values=values)


def _depth_to_space(op: SourceOperation) -> None:
    mode = op.one_of({"blocks_first": "DCR", "depth_first": "CRD"}, "mode")
    op.compute(f"DepthToSpace(x0, blocksize=block_size, mode={mode!r})")


def _space_to_depth(op: SourceOperation) -> None:
    op.one_of({"blocks_first": ""}, "mode", "blocks_first")
    op.compute("SpaceToDepth(x0, blocksize=block_size)")


def _range(op: SourceOperation) -> None:
    given = zip(("start", "stop", "step"), ("x0", "x1", "x2"), strict=True)
    kind = op.result().dtype
    op.write("Range", *(op.constant(n, op.value(x).astype(kind).reshape(())) for n, x in given))


ARRANGING: dict[str, Translation] = {
    "Broadcast": _expand,
    "Concat": lambda op: op.write(
        "Concat", *op.tensors(*op.step.arguments), axis=op.integer("axis")
    ),
    "DepthToSpace": _depth_to_space,
    "Gather": shared.unless("batch_dims", "Gather(x0, x1, axis=x2)"),
    "GatherElements": "GatherElements(x0, x1, axis=axis)",
    "GatherND": "GatherND(x0, x1, batch_dims=batch_dims)",
    "OneHot": _one_hot,
    "Pad": _pad,
    "Range": _range,
    "Reshape": shared.reshaped("x0"),
    "ScatterElementsUpdate": _scatter_elements,
    "ScatterNDUpdate": _scatter_nd,
    "Slice": _slice,
    "SpaceToDepth": _space_to_depth,
    "Split": shared.split("x0", "x1"),
    "Squeeze": shared.squeeze("x0", "x1"),
    "StridedSlice": _strided_slice,
    "Tile": _tile,
    "TopK": _topk,
    "Transpose": _transpose,
    "Unsqueeze": shared.unsqueeze("x0", "x1"),
    "VariadicSplit": shared.split("x0", "x1"),
}
