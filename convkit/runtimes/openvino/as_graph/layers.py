"""Convolutions, pooling, resizing, normalizations and recurrent layers as ONNX nodes."""

from collections.abc import Sequence

import numpy as np

from convkit.worker.cause.other_formats.operation_writing import (
    TURNED,
    NotTranslatedError,
    SourceOperation,
)
from convkit.worker.cause.other_formats.source_model import Translation

# Between [batch, directions, steps, ...] and ONNX's [steps, directions, batch, ...].
_STEPS_FIRST = [2, 1, 0, 3]


def _numbers(op: SourceOperation, name: str) -> list[int]:
    return [int(each) for each in op.settings[name]]


def _padding(op: SourceOperation) -> dict[str, object]:
    kind = op.text("auto_pad", "explicit").lower()
    if kind in ("same_upper", "same_lower", "valid"):
        return {"auto_pad": kind.upper()}
    return {"pads": [*_numbers(op, "pads_begin"), *_numbers(op, "pads_end")]}


def _grouped(op: SourceOperation) -> tuple[str, int]:
    """Return a grouped weight with the groups in its first axis, as ONNX has it, and how many there
    are.
    """
    values = op.value("1")
    groups = values.shape[0]
    shape = (groups * values.shape[1], *values.shape[2:])
    return _reshaped(op, shape), groups


def _reshaped(op: SourceOperation, shape: Sequence[int]) -> str:
    weight = op.tensor("1")
    if weight in op.writer.constants:
        name = f"{weight}{TURNED}"
        op.writer.constants[name] = op.writer.constants[weight].reshape(shape)
        return name
    return op.write("Reshape", weight, op.whole("shape", list(shape)), to=op.inner("weight"))


def _conv(op: SourceOperation) -> None:
    _write_conv(op, op.tensor("1"), 1)


def _group_conv(op: SourceOperation) -> None:
    _write_conv(op, *_grouped(op))


def _write_conv(op: SourceOperation, weight: str, groups: int) -> None:
    keys = {
        "strides": _numbers(op, "strides"),
        "dilations": _numbers(op, "dilations"),
        "group": groups,
        **_padding(op),
    }
    op.write("Conv", op.tensor("0"), weight, attributes=keys)


def _conv_transpose(op: SourceOperation) -> None:
    _write_conv_transpose(op, op.tensor("1"), 1, op.value("1").shape[2:])


def _group_conv_transpose(op: SourceOperation) -> None:
    # [groups, in / groups, out / groups, ...] is ONNX's [in, out / groups, ...].
    _write_conv_transpose(op, *_grouped(op), op.value("1").shape[3:])


def _write_conv_transpose(
    op: SourceOperation, weight: str, groups: int, widths: Sequence[int]
) -> None:
    if op.text("auto_pad", "explicit").lower() not in ("explicit", "notset", "valid"):
        raise NotTranslatedError("padding to the same size")
    made, sizes = op.result().shape[2:], op.value("0").shape[2:]
    strides, dilations = _numbers(op, "strides"), _numbers(op, "dilations")
    before, after = _numbers(op, "pads_begin"), _numbers(op, "pads_end")
    spans = zip(sizes, widths, strides, dilations, before, after, strict=True)
    usual = [(n - 1) * step + (w - 1) * gap + 1 - b - a for n, w, step, gap, b, a in spans]
    keys = {
        "strides": strides,
        "dilations": dilations,
        "group": groups,
        "pads": [*before, *after],
        "output_padding": [size - other for size, other in zip(made, usual, strict=True)],
    }
    op.write("ConvTranspose", op.tensor("0"), weight, attributes=keys)


def _pool(operator: str) -> Translation:
    def translate(op: SourceOperation) -> None:
        more: dict[str, object] = {}
        if operator == "AveragePool":
            more["count_include_pad"] = int(not op.settings["exclude-pad"])
        if op.settings.get("dilations"):
            more["dilations"] = _numbers(op, "dilations")
        keys = {
            "kernel_shape": _numbers(op, "kernel"),
            "strides": _numbers(op, "strides"),
            "ceil_mode": int(op.text("rounding_type", "floor").lower() != "floor"),
            **_padding(op),
            **more,
        }
        op.write(operator, op.tensor("0"), attributes=keys)

    return translate


def _adaptive_average(op: SourceOperation) -> None:
    sizes = op.value("0").shape[2:]
    if any(size != 1 for size in op.result().shape[2:]):
        raise NotTranslatedError("windows of several sizes")
    axes = op.whole("axes", [*range(2, 2 + len(sizes))])
    op.write("ReduceMean", op.tensor("0"), axes, attributes={"keepdims": 1})


def _interpolate(op: SourceOperation) -> None:
    mode = op.text("mode", "").lower()
    modes = {"nearest": "nearest", "linear": "linear", "linear_onnx": "linear", "cubic": "cubic"}
    padded = any(_numbers(op, "pads_begin")) or any(_numbers(op, "pads_end"))
    if mode not in modes or padded or op.settings.get("antialias"):
        raise NotTranslatedError(f"{mode} with padding or antialiasing")
    grid = op.text("coordinate_transformation_mode", "half_pixel").lower()
    if grid == "tf_half_pixel_for_nn":
        raise NotTranslatedError(grid)
    keys = {"mode": modes[mode], "coordinate_transformation_mode": grid}
    if mode == "nearest":
        keys["nearest_mode"] = op.text("nearest_mode", "round_prefer_floor").lower()
    cubic = {"cubic_coeff_a": float(op.settings["cube_coeff"])} if mode == "cubic" else {}
    sizes = op.whole("sizes", op.result().shape)
    op.write("Resize", op.tensor("0"), "", "", sizes, attributes={**keys, **cubic})


def _grid_sample(op: SourceOperation) -> None:
    modes = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
    keys = {
        "mode": modes[op.text("mode", "bilinear").lower()],
        "padding_mode": op.text("padding_mode", "zeros").lower(),
        "align_corners": int(op.settings["align_corners"]),
    }
    op.write("GridSample", op.tensor("0"), op.tensor("1"), attributes=keys)


def _mvn(op: SourceOperation) -> None:
    """Write a normalization; scale and shift are operations of their own. ONNX normalizes the last
    axes alone, others are moved there and back.
    """
    x = op.value("0")
    axes = sorted(axis % x.ndim for axis in op.integers("1"))
    inside = op.text("eps_mode", "inside_sqrt").lower() == "inside_sqrt"
    if not inside or not op.settings["normalize_variance"]:
        raise NotTranslatedError("another norm")
    order = [*(axis for axis in range(x.ndim) if axis not in axes), *axes]
    gain = op.constant("gain", np.ones([x.shape[axis] for axis in axes], np.float32))
    keys = {"axis": -len(axes), "epsilon": float(op.settings["eps"])}
    if order == sorted(order):
        op.write("LayerNormalization", op.tensor("0"), gain, attributes=keys)
        return
    turned = op.write("Transpose", op.tensor("0"), to=op.inner("last"), attributes={"perm": order})
    normal = op.inner("normalized")
    op.write("LayerNormalization", turned, gain, to=normal, attributes=keys)
    op.write("Transpose", normal, attributes={"perm": [int(each) for each in np.argsort(order)]})


def _group_norm(op: SourceOperation) -> None:
    x, groups = op.value("0"), int(op.settings["num_groups"])
    shape = op.whole("groups", [x.shape[0], groups, -1])
    apart = op.write("Reshape", op.tensor("0"), shape, to=op.inner("apart"))
    width = x.size // (x.shape[0] * groups)
    gain = op.constant("gain", np.ones(width, np.float32))
    keys = {"axis": -1, "epsilon": float(op.settings["epsilon"])}
    to = op.inner("normalized")
    normal = op.write("LayerNormalization", apart, gain, to=to, attributes=keys)
    back = op.write("Reshape", normal, op.whole("shape", x.shape), to=op.inner("back"))
    channels = op.whole("channels", [-1, *[1] * (x.ndim - 2)])
    scale, shift = (
        op.write("Reshape", op.tensor(place), channels, to=op.inner(name))
        for place, name in (("1", "scale"), ("2", "shift"))
    )
    op.write("Add", op.write("Mul", back, scale, to=op.inner("scaled")), shift)


def _batch_norm(op: SourceOperation) -> None:
    numbers = (op.tensor(str(place)) for place in range(5))
    keys = {"epsilon": float(op.settings["epsilon"])}
    op.write("BatchNormalization", *numbers, attributes=keys)


def _normalize_l2(op: SourceOperation) -> None:
    x, outside = op.tensor("0"), op.text("eps_mode", "add").lower()
    squares = op.write("Mul", x, x, to=op.inner("squares"))
    axes = op.whole("axes", op.integers("1"))
    total = op.write("ReduceSum", squares, axes, to=op.inner("total"))
    least = op.constant("epsilon", np.asarray(op.settings["eps"], np.float32))
    bounded = op.write("Add" if outside == "add" else "Max", total, least, to=op.inner("bounded"))
    op.write("Div", x, op.write("Sqrt", bounded, to=op.inner("norm")))


def _lstm(op: SourceOperation) -> None:
    """Write an LSTM: an IR has gates in the order forget, input, cell, output, ONNX has input,
    output, forget, cell.
    """
    weights = [_gates(op, place, (1, 3, 0, 2)) for place in ("4", "5", "6")]
    _recurrent(op, "LSTM", weights, ("1", "2"), {})


def _gru(op: SourceOperation) -> None:
    """Write a GRU. With a linear layer before the reset, the fourth row of biases is the recurrent
    one of the hidden gate.
    """
    before = bool(op.settings["linear_before_reset"])
    weights = [_gates(op, place, (0, 1, 2)) for place in ("3", "4")]
    biases = op.value("5")
    rows = np.split(biases, 4 if before else 3, axis=1)
    recurrent = [np.zeros_like(rows[0])] * 2 + [rows[3] if before else np.zeros_like(rows[0])]
    both = np.concatenate([*rows[:3], *recurrent], axis=1)
    weights.append(f"{op.tensor('5')}{TURNED}")
    op.writer.constants[weights[-1]] = both
    _recurrent(op, "GRU", weights, ("1",), {"linear_before_reset": int(before)})


def _gates(op: SourceOperation, place: str, order: Sequence[int]) -> str:
    """Return a weight with its gates in ONNX's order, under its own name; the biases with zeros for
    the recurrent ones.
    """
    values = op.value(place)
    parts = np.split(values, len(order), axis=1)
    ordered = np.concatenate([parts[index] for index in order], axis=1)
    if ordered.ndim < 3:
        ordered = np.concatenate([ordered, np.zeros_like(ordered)], axis=1)
    name = f"{op.tensor(place)}{TURNED}"
    op.writer.constants[name] = ordered
    return name


def _recurrent(
    op: SourceOperation,
    operator: str,
    weights: list[str],
    states: tuple[str, ...],
    more: dict[str, object],
) -> None:
    usual = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"]}[operator]
    if [str(each).lower() for each in op.settings["activations"]] != usual:
        raise NotTranslatedError("other activations")
    if float(op.settings.get("clip", 0)):
        raise NotTranslatedError("clipped")
    lengths = op.value(str(len(states) + 1))
    if (lengths != op.value("0").shape[1]).any():
        raise NotTranslatedError("sequences of several lengths")
    keys = {"perm": [1, 0, 2]}
    x = op.write("Transpose", op.tensor("0"), to=op.inner("steps first"), attributes=keys)
    begins = [
        op.write("Transpose", op.tensor(place), to=op.inner(f"state {place}"), attributes=keys)
        for place in states
    ]
    made = tuple(op.inner(f"result {place}") for place in range(len(op.results)))
    layer = {
        "hidden_size": int(op.settings["hidden_size"]),
        "direction": op.text("direction", "forward").lower(),
        **more,
    }
    op.write(operator, x, *weights, "", *begins, to=made, attributes=layer)
    op.write("Transpose", made[0], attributes={"perm": _STEPS_FIRST})
    for result, name in zip(made[1:], op.results[1:], strict=True):
        op.write("Transpose", result, to=name, attributes=keys)


LAYERS: dict[str, Translation] = {
    "AdaptiveAvgPool": _adaptive_average,
    "AvgPool": _pool("AveragePool"),
    "BatchNormInference": _batch_norm,
    "Convolution": _conv,
    "ConvolutionBackpropData": _conv_transpose,
    "GRUSequence": _gru,
    "GridSample": _grid_sample,
    "GroupConvolution": _group_conv,
    "GroupConvolutionBackpropData": _group_conv_transpose,
    "GroupNormalization": _group_norm,
    "Interpolate": _interpolate,
    "LSTMSequence": _lstm,
    "MVN": _mvn,
    "MaxPool": _pool("MaxPool"),
    "NormalizeL2": _normalize_l2,
}
