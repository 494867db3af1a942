"""Operations that place elements by index, order or block, as ONNX nodes."""

import numpy as np
from onnx import TensorProto

from convkit.worker.cause.other_formats.operation_writing import NotTranslatedError, SourceOperation
from convkit.worker.cause.other_formats.source_model import Translation

# What an element is combined with where it is placed, as ONNX calls it.
_COMBINED = {"update": "none", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _argsort(op: SourceOperation) -> None:
    axis = op.integer("axis", -1)
    count = op.whole("k", [op.value("x").shape[axis]])
    made = op.inner("values"), op.inner("places")
    keys = {"axis": axis, "largest": int(not op.flag("ascending"))}
    op.write("TopK", op.tensor("x"), count, to=made, attributes=keys)
    op.write("Cast", made[1], attributes={"to": TensorProto.INT32})


def _one_hot(op: SourceOperation) -> None:
    size = op.whole("size", [op.integer("one_hot_vector_size")])
    values = op.constant("values", np.stack([op.value("off_value"), op.value("on_value")]))
    op.write("OneHot", _wide(op), size, values, attributes={"axis": op.integer("axis", -1)})


def _band_part(op: SourceOperation) -> None:
    """Keep a band around the diagonal: a triangle for each bound that is not negative."""
    bounds = {"lower": (op.integer("lower", -1), 1), "upper": (op.integer("upper", -1), 0)}
    given = [name for name, (bound, _) in bounds.items() if bound >= 0]
    x = op.tensor("x")
    for name in given:
        bound, is_upper = bounds[name]
        far = op.constant(f"{name} bound", np.asarray(-bound if is_upper else bound, np.int64))
        to = op.out if name == given[-1] else op.inner(name)
        x = op.write("Trilu", x, far, to=to, attributes={"upper": is_upper})
    if not given:
        op.write("Identity", x)


def _scatter(op: SourceOperation) -> None:
    """Place whole slices: elements whose indices are alike along all other axes."""
    data = op.value("data")
    axis = op.integer("axis", 0) % data.ndim
    spread = op.whole("spread", [-1 if each == axis else 1 for each in range(data.ndim)])
    shape = op.whole("shape", op.value("updates").shape)
    rows = op.write("Reshape", op.tensor("indices"), spread, to=op.inner("rows"))
    _scattered(op, op.write("Expand", rows, shape, to=op.inner("places")), axis)


def _scatter_along_axis(op: SourceOperation) -> None:
    _scattered(op, op.tensor("indices"), op.integer("axis", 0))


def _scattered(op: SourceOperation, places: str, axis: int) -> None:
    keys = {"axis": axis, "reduction": _combination(op)}
    op.write("ScatterElements", op.tensor("data"), places, op.tensor("updates"), attributes=keys)


def _scatter_nd(op: SourceOperation) -> None:
    keys = {"reduction": _combination(op)}
    op.write("ScatterND", op.tensor("data"), _wide(op), op.tensor("updates"), attributes=keys)


def _wide(op: SourceOperation) -> str:
    """Return the indices in the type that every ONNX operator accepts."""
    keys = {"to": TensorProto.INT64}
    return op.write("Cast", op.tensor("indices"), to=op.inner("indices"), attributes=keys)


def _combination(op: SourceOperation) -> str:
    mode = op.text("mode", "add")
    if mode not in _COMBINED:
        raise NotTranslatedError(mode)
    return _COMBINED[mode]


def _non_zero(op: SourceOperation) -> None:
    rows = op.write("NonZero", op.tensor("x"), to=op.inner("rows"))
    turned = op.write("Transpose", rows, to=op.inner("turned"), attributes={"perm": [1, 0]})
    op.write("Cast", turned, attributes={"to": TensorProto.INT32})


def _sliding_windows(op: SourceOperation) -> None:
    axis, size = op.integer("axis") % op.value("x").ndim, op.integer("size")
    starts = np.arange(op.result().shape[axis]) * op.integer("stride", 1)
    places = op.constant("windows", starts[:, None] + np.arange(size))
    op.write("Gather", op.tensor("x"), places, attributes={"axis": axis})


def _depth_to_space(op: SourceOperation) -> None:
    keys = {"blocksize": op.integer("block_size"), "mode": "DCR"}
    op.write("DepthToSpace", op.tensor("x"), attributes=keys)


def _space_to_depth(op: SourceOperation) -> None:
    op.write("SpaceToDepth", op.tensor("x"), attributes={"blocksize": op.integer("block_size")})


def _pixel_unshuffle(op: SourceOperation) -> None:
    """Move space into channels, the position inside the block varying fastest."""
    size = op.integer("downscale_factor")
    batch, channels, height, width = op.value("x").shape
    apart = op.whole("apart", [batch, channels, height // size, size, width // size, size])
    parts = op.write("Reshape", op.tensor("x"), apart, to=op.inner("parts"))
    moved = op.write(
        "Transpose", parts, to=op.inner("moved"), attributes={"perm": [0, 1, 3, 5, 2, 4]}
    )
    op.write("Reshape", moved, op.whole("shape", op.result().shape))


def _resample(op: SourceOperation) -> None:
    """Sample an image at normalized coordinates: ONNX reflects as torch does."""
    padding, corners = op.text("padding_mode", ""), op.flag("align_corners")
    known = {"constant": "zeros", "border": "border"}
    known["reflection" if corners else "symmetric"] = "reflection"
    outside = padding == "constant" and op.number("padding_value") != 0
    if op.text("coordinates_mode", "") != "normalized_minus_one_to_one" or outside:
        raise NotTranslatedError("other coordinates, or another number outside")
    mode = {"bilinear": "linear", "nearest": "nearest"}[op.text("sampling_mode", "")]
    keys = {"mode": mode, "padding_mode": known[padding], "align_corners": int(corners)}
    op.write("GridSample", op.tensor("x"), op.tensor("coordinates"), attributes=keys)


PLACING: dict[str, Translation] = {
    "argsort": _argsort,
    "band_part": _band_part,
    "depth_to_space": _depth_to_space,
    "non_zero": _non_zero,
    "one_hot": _one_hot,
    "pixel_unshuffle": _pixel_unshuffle,
    "resample": _resample,
    "scatter": _scatter,
    "scatter_along_axis": _scatter_along_axis,
    "scatter_nd": _scatter_nd,
    "sliding_windows": _sliding_windows,
    "space_to_depth": _space_to_depth,
}
