"""Convolutions, pooling, resizing, normalizations and recurrent layers as ONNX nodes."""

from collections.abc import Sequence

import numpy as np

from convkit.worker.cause.other_formats.source_operation import (
    NotTranslatedError,
    SourceOperation,
    Translation,
)
from convkit.worker.graph.operators.composed_operators import (
    layer_normalization,
    resized,
    transposed_convolution,
)
from convkit.worker.graph.operators.formulas import Attributes

# Between [batch, directions, steps, ...] and ONNX's [steps, directions, batch, ...].
_STEPS_FIRST = [2, 1, 0, 3]


def _padding(op: SourceOperation) -> Attributes:
    kind = op.text("auto_pad", "explicit")
    if kind in ("same_upper", "same_lower", "valid"):
        return {"auto_pad": kind.upper()}
    return {"pads": [*op.integers("pads_begin"), *op.integers("pads_end")]}


def _weight(op: SourceOperation, *, grouped: bool) -> tuple[str, int]:
    """Return a weight with its groups in the first axis, as ONNX has it, and how many there are."""
    if not grouped:
        return op.tensor("x1"), 1
    groups, size, *rest = op.shape("x1")
    shape = (groups * size, *rest)
    if op.tensor("x1") in op.constants:
        return op.rearranged("x1", op.value("x1").reshape(shape)), groups
    return op.write("Reshape", op.tensor("x1"), shape, inner="weight"), groups


def _conv(*, grouped: bool) -> Translation:
    def translate(op: SourceOperation) -> None:
        weight, groups = _weight(op, grouped=grouped)
        keys: Attributes = {key: op.integers(key) for key in ("strides", "dilations")}
        op.write("Conv", op.tensor("x0"), weight, group=groups, **keys, **_padding(op))

    return translate


def _conv_transpose(*, grouped: bool) -> Translation:
    """Write a transposed convolution: [groups, in / groups, out / groups, ...] is ONNX's
    [in, out / groups, ...].
    """

    def translate(op: SourceOperation) -> None:
        if op.text("auto_pad", "explicit") not in ("explicit", "notset", "valid"):
            raise NotTranslatedError("padding to the same size")
        weight, groups = _weight(op, grouped=grouped)
        sizes = op.shape("x0")[2:], op.shape("x1")[2 + grouped :], op.result().shape[2:]
        pads = [*op.integers("pads_begin"), *op.integers("pads_end")]
        steps = op.integers("strides"), op.integers("dilations")
        transposed_convolution(op, [op.tensor("x0"), weight], sizes, *steps, pads, groups)

    return translate


def _pool(operator: str) -> Translation:
    def translate(op: SourceOperation) -> None:
        average = operator == "AveragePool"
        op.write(
            operator,
            op.tensor("x0"),
            kernel_shape=op.integers("kernel"),
            strides=op.integers("strides"),
            ceil_mode=int(op.text("rounding_type", "floor") != "floor"),
            count_include_pad=int(not op.flag("exclude-pad")) if average else None,
            dilations=op.integers("dilations", []) or None,
            **_padding(op),
        )

    return translate


def _adaptive_average(op: SourceOperation) -> None:
    rank = op.result().ndim
    if any(size != 1 for size in op.result().shape[2:]):
        raise NotTranslatedError("windows of several sizes")
    op.write("ReduceMean", op.tensor("x0"), [*range(2, rank)], keepdims=1)


def _interpolate(op: SourceOperation) -> None:
    modes = {"nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic"}
    mode = op.one_of(modes, "mode")
    padded = any([*op.integers("pads_begin"), *op.integers("pads_end")])
    grid = op.text("coordinate_transformation_mode", "half_pixel")
    if padded or op.flag("antialias") or grid == "tf_half_pixel_for_nn":
        raise NotTranslatedError(f"{mode} with padding or antialiasing, or of another grid")
    keys: Attributes = {"mode": mode}
    if mode == "nearest":
        keys["nearest_mode"] = op.text("nearest_mode", "round_prefer_floor")
    if mode == "cubic":
        keys["cubic_coeff_a"] = op.number("cube_coeff")
    resized(op, op.tensor("x0"), op.result().shape, grid, keys)


def _grid_sample(op: SourceOperation) -> None:
    modes = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
    op.write(
        "GridSample",
        *op.tensors("x0", "x1"),
        mode=op.one_of(modes, "mode", "bilinear"),
        padding_mode=op.text("padding_mode", "zeros"),
        align_corners=op.integer("align_corners"),
    )


def _mvn(op: SourceOperation) -> None:
    """Write a normalization; scale and shift are operations of their own."""
    if op.text("eps_mode", "inside_sqrt") != "inside_sqrt" or not op.flag("normalize_variance"):
        raise NotTranslatedError("another norm")
    layer_normalization(op, op.tensor("x0"), op.shape("x0"), op.integers("x1"), op.number("eps"))


def _group_norm(op: SourceOperation) -> None:
    shape, groups = op.shape("x0"), op.integer("num_groups")
    width = op.value("x0").size // (shape[0] * groups)
    op.compute(
        "Add(Mul(Reshape(LayerNormalization(Reshape(x0, groups), gain, axis=-1, epsilon=epsilon),"
        " whole), Reshape(x1, channels)), Reshape(x2, channels))",
        groups=[shape[0], groups, -1],
        whole=shape,
        channels=op.constant("channels", [-1, *[1] * (len(shape) - 2)]),
        gain=op.constant("gain", np.ones(width, np.float32)),
    )


def _normalize_l2(op: SourceOperation) -> None:
    bounded = "Add" if op.text("eps_mode", "add") == "add" else "Max"
    op.compute(
        f"Div(x0, Sqrt({bounded}(ReduceSum(Mul(x0, x0), x1), epsilon)))",
        epsilon=op.constant("epsilon", op.number("eps")),
    )


def _lstm(op: SourceOperation) -> None:
    """Write an LSTM: an IR has gates in the order forget, input, cell, output, ONNX has input,
    output, forget, cell.
    """
    weights = [_gates(op, place, (1, 3, 0, 2)) for place in ("x4", "x5", "x6")]
    _recurrent(op, "LSTM", weights, ("x1", "x2"), {})


def _gru(op: SourceOperation) -> None:
    """Write a GRU. With a linear layer before the reset, the fourth row of biases is the recurrent
    one of the hidden gate.
    """
    before = op.flag("linear_before_reset")
    weights = [_gates(op, place, (0, 1, 2)) for place in ("x3", "x4")]
    biases = op.value("x5")
    rows = np.split(biases, 4 if before else 3, axis=1)
    recurrent = [np.zeros_like(rows[0])] * 2 + [rows[3] if before else np.zeros_like(rows[0])]
    both = np.concatenate([*rows[:3], *recurrent], axis=1)
    weights.append(op.rearranged("x5", both))
    _recurrent(op, "GRU", weights, ("x1",), {"linear_before_reset": int(before)})


def _gates(op: SourceOperation, place: str, order: Sequence[int]) -> str:
    """Return a weight with its gates in ONNX's order, under its own name; the biases with zeros for
    the recurrent ones.
    """
    values = op.value(place)
    parts = np.split(values, len(order), axis=1)
    ordered = np.concatenate([parts[index] for index in order], axis=1)
    if ordered.ndim < 3:
        ordered = np.concatenate([ordered, np.zeros_like(ordered)], axis=1)
    return op.rearranged(place, ordered)


def _recurrent(
    op: SourceOperation,
    operator: str,
    weights: list[str],
    states: tuple[str, ...],
    more: Attributes,
) -> None:
    usual = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"]}[operator]
    if [str(each).lower() for each in op.given("activations")] != usual:
        raise NotTranslatedError("other activations")
    if op.number("clip", 0.0):
        raise NotTranslatedError("clipped")
    if (op.value(f"x{len(states) + 1}") != op.shape("x0")[1]).any():
        raise NotTranslatedError("sequences of several lengths")
    perm = [1, 0, 2]
    x = op.write("Transpose", op.tensor("x0"), inner="steps first", perm=perm)
    begins = [
        op.write("Transpose", op.tensor(place), inner=f"state {place}", perm=perm)
        for place in states
    ]
    made = [op.inner(f"result {place}") for place in range(len(op.results))]
    op.write(
        operator,
        *(x, *weights, "", *begins),
        outputs=made,
        hidden_size=op.integer("hidden_size"),
        direction=op.text("direction", "forward"),
        **more,
    )
    op.write("Transpose", made[0], perm=_STEPS_FIRST)
    for result, name in zip(made[1:], op.results[1:], strict=True):
        op.write("Transpose", result, outputs=[name], perm=perm)


LAYERS: dict[str, Translation] = {
    "AdaptiveAvgPool": _adaptive_average,
    "AvgPool": _pool("AveragePool"),
    "BatchNormInference": "BatchNormalization(x0, x1, x2, x3, x4, epsilon=epsilon)",
    "Convolution": _conv(grouped=False),
    "ConvolutionBackpropData": _conv_transpose(grouped=False),
    "GRUSequence": _gru,
    "GridSample": _grid_sample,
    "GroupConvolution": _conv(grouped=True),
    "GroupConvolutionBackpropData": _conv_transpose(grouped=True),
    "GroupNormalization": _group_norm,
    "Interpolate": _interpolate,
    "LSTMSequence": _lstm,
    "MVN": _mvn,
    "MaxPool": _pool("MaxPool"),
    "NormalizeL2": _normalize_l2,
}
