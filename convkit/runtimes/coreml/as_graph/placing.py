"""Operations that place elements by index, order or block, as ONNX nodes."""

import numpy as np
from onnx import TensorProto

from convkit.worker.cause.other_formats.source_operation import (
    NotTranslatedError,
    SourceOperation,
    Translation,
)

# What an element is combined with where it is placed, as ONNX calls it.
_COMBINED = {"update": "none", "add": "add", "mul": "mul", "max": "max", "min": "min"}
_ELEMENTS = "ScatterElements(data, indices, updates, axis={0}, reduction={1!r})"


def _argsort(op: SourceOperation) -> None:
    axis, made = op.integer("axis", -1), [op.inner("values"), op.inner("places")]
    count, largest = [op.shape("x")[axis]], int(not op.flag("ascending"))
    op.write("TopK", op.tensor("x"), count, outputs=made, axis=axis, largest=largest)
    op.cast(made[1])


def _one_hot(op: SourceOperation) -> None:
    size = op.constant("size", [op.integer("one_hot_vector_size")])
    values = op.constant("values", np.stack([op.value("off_value"), op.value("on_value")]))
    # onnxruntime has no kernel for 32-bit indices.
    wide = op.write("Cast", op.tensor("indices"), inner="indices", to=TensorProto.INT64)
    op.compute("OneHot(wide, size, values, axis=axis)", wide=wide, size=size, values=values)


def _band_part(op: SourceOperation) -> None:
    """Keep a band around the diagonal: a triangle for each bound that is not negative."""
    bounds = {"lower": (op.integer("lower", -1), 1), "upper": (op.integer("upper", -1), 0)}
    given = [name for name, (bound, _) in bounds.items() if bound >= 0]
    x = op.tensor("x")
    for name in given:
        bound, is_upper = bounds[name]
        far = op.constant(f"{name} bound", -bound if is_upper else bound)
        x = op.write("Trilu", x, far, inner="" if name == given[-1] else name, upper=is_upper)
    if not given:
        op.write("Identity", x)


def _scatter(op: SourceOperation) -> None:
    """Place whole slices: elements whose indices are alike along all other axes."""
    data = op.value("data")
    axis = op.integer("axis", 0) % data.ndim
    spread = [-1 if each == axis else 1 for each in range(data.ndim)]
    rows = op.write("Reshape", op.tensor("indices"), spread, inner="rows")
    places = op.write("Expand", rows, op.shape("updates"), inner="places")
    op.compute(_ELEMENTS.format(axis, _combination(op)), indices=places)


def _scattered(formula: str) -> Translation:
    return lambda op: op.compute(formula.format("axis", _combination(op)))


def _combination(op: SourceOperation) -> str:
    return op.one_of(_COMBINED, "mode", "add")


def _non_zero(op: SourceOperation) -> None:
    op.cast(op.compute("Transpose(NonZero(x), perm=[1, 0])", inner="turned"))


def _sliding_windows(op: SourceOperation) -> None:
    axis, size = op.integer("axis") % op.value("x").ndim, op.integer("size")
    starts = np.arange(op.result().shape[axis]) * op.integer("stride", 1)
    places = op.constant("windows", starts[:, None] + np.arange(size))
    op.write("Gather", op.tensor("x"), places, axis=axis)


def _pixel_unshuffle(op: SourceOperation) -> None:
    """Move space into channels, the position inside the block varying fastest."""
    size = op.integer("downscale_factor")
    batch, channels, height, width = op.shape("x")
    op.compute(
        "Reshape(Transpose(Reshape(x, apart), perm=[0, 1, 3, 5, 2, 4]), whole)",
        apart=[batch, channels, height // size, size, width // size, size],
        whole=op.result().shape,
    )


def _resample(op: SourceOperation) -> None:
    """Sample an image at normalized coordinates: ONNX reflects as torch does."""
    corners = op.flag("align_corners")
    known = {"constant": "zeros", "border": "border"}
    known["reflection" if corners else "symmetric"] = "reflection"
    padding = op.one_of(known, "padding_mode")
    outside = padding == "zeros" and op.number("padding_value") != 0
    if op.text("coordinates_mode") != "normalized_minus_one_to_one" or outside:
        raise NotTranslatedError("other coordinates, or another number outside")
    mode = op.one_of({"bilinear": "linear", "nearest": "nearest"}, "sampling_mode")
    keys = f"mode={mode!r}, padding_mode={padding!r}, align_corners={int(corners)}"
    op.compute(f"GridSample(x, coordinates, {keys})")


PLACING: dict[str, Translation] = {
    "argsort": _argsort,
    "band_part": _band_part,
    "depth_to_space": "DepthToSpace(x, blocksize=block_size)",
    "non_zero": _non_zero,
    "one_hot": _one_hot,
    "pixel_unshuffle": _pixel_unshuffle,
    "resample": _resample,
    "scatter": _scatter,
    "scatter_along_axis": _scattered(_ELEMENTS),
    "scatter_nd": _scattered("ScatterND(data, indices, updates, reduction={1!r})"),
    "sliding_windows": _sliding_windows,
    "space_to_depth": "SpaceToDepth(x, blocksize=block_size)",
}
