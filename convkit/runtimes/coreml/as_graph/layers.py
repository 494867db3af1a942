"""Convolutions, pooling, normalizations and recurrent layers as ONNX nodes."""

import numpy as np

from convkit.worker.cause.other_formats.source_operation import (
    NotTranslatedError,
    SourceOperation,
    Translation,
)
from convkit.worker.graph.operators.composed_operators import (
    layer_normalization,
    transposed_convolution,
)
from convkit.worker.graph.operators.formulas import Attributes

_AUTO = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}
_GATES = 4
_RECURRENT = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}


def _padding(op: SourceOperation) -> Attributes:
    """Return padding as attributes: explicit pads where there are any, so that they can be
    compared.
    """
    kind = op.text("pad_type", "valid")
    if kind != "custom":
        return {"auto_pad": _AUTO[kind]}
    flat = op.integers("pad")
    return {"pads": [*flat[::2], *flat[1::2]]}


def _conv(op: SourceOperation) -> None:
    keys: Attributes = {key: op.integers(key) for key in ("strides", "dilations")}
    given = op.tensors("x", "weight", "bias")
    op.write("Conv", *given, group=op.integer("groups", 1), **keys, **_padding(op))


def _conv_transpose(op: SourceOperation) -> None:
    keys = _padding(op)
    if "auto_pad" in keys and keys["auto_pad"] != "VALID":
        raise NotTranslatedError("padding to the same size")
    strides, dilations = op.integers("strides"), op.integers("dilations")
    pads = keys.get("pads", [0] * 2 * len(strides))
    assert isinstance(pads, list)
    sizes = op.shape("x")[2:], op.shape("weight")[2:], op.result().shape[2:]
    given, group = op.tensors("x", "weight", "bias"), op.integer("groups", 1)
    transposed_convolution(op, given, sizes, strides, dilations, pads, group)


def _pool(operator: str) -> Translation:
    def translate(op: SourceOperation) -> None:
        average = operator == "AveragePool"
        op.write(
            operator,
            op.tensor("x"),
            kernel_shape=op.integers("kernel_sizes"),
            strides=op.integers("strides"),
            ceil_mode=op.integer("ceil_mode", 0),
            count_include_pad=int(not op.flag("exclude_padding_from_average")) if average else None,
            **_padding(op),
        )

    return translate


def _layer_norm(op: SourceOperation) -> None:
    axes, shape = op.axes("axes", "x"), op.shape("x")
    gain = op.tensors("gamma") or [
        op.constant("gain", np.ones([shape[axis] for axis in axes], np.float32))
    ]
    factors = [*gain, *op.tensors("beta")]
    layer_normalization(op, op.tensor("x"), shape, axes, op.number("epsilon"), factors)


def _channel_norm(formula: str) -> Translation:
    """Normalize channels; without a gain or a shift, these are ones and zeros."""

    def translate(op: SourceOperation) -> None:
        channels = op.shape("x")[1]
        usual = {"gamma": np.ones(channels, np.float32), "beta": np.zeros(channels, np.float32)}
        absent = {name: op.constant(name, usual[name]) for name in usual if not op.has(name)}
        op.compute(formula, **absent)

    return translate


def _lstm(op: SourceOperation) -> None:
    """Write an LSTM: a program has gates in the order input, forget, output, cell, ONNX has input,
    output, forget, cell; a program joins the directions' outputs.
    """
    names = ("recurrent_activation", "cell_activation", "activation")
    usual = ("sigmoid", "tanh", "tanh")
    activations = [_RECURRENT.get(op.text(n, u)) for n, u in zip(names, usual, strict=True)]
    if None in activations or op.has("clip"):
        raise NotTranslatedError("other activations")
    direction = op.text("direction", "forward")
    ways = ("", "_back") if direction == "bidirectional" else ("",)
    weights = [
        op.constant(name, np.stack([_gates(op.value(name + way)) for way in ways]))
        for name in ("weight_ih", "weight_hh")
    ]
    inputs = [op.tensor("x"), *weights]
    hidden = op.value("weight_hh").shape[1]
    if op.has("bias"):
        rows = [_gates(op.value("bias" + way)) for way in ways]
        both = [np.concatenate([row, np.zeros_like(row)]) for row in rows]
        inputs.append(op.constant("bias", np.stack(both)))
    else:
        inputs.append("")
    states = [_state(op, name, len(ways), hidden) for name in ("initial_h", "initial_c")]
    made = tuple(op.inner(each) for each in ("sequence", "last", "cell"))
    gates = [str(each) for each in activations] * len(ways)
    keys = {"hidden_size": hidden, "direction": direction, "activations": gates}
    op.write("LSTM", *inputs, "", *states, outputs=made, **keys)
    _joined(op, made, len(ways))


def _rnn(op: SourceOperation) -> None:
    activation = op.one_of(_RECURRENT, "activation", "tanh")
    hidden = op.value("weight_hh").shape[1]
    weights = [op.constant(n, op.value(n)[None]) for n in ("weight_ih", "weight_hh")]
    bias = op.value("bias") if op.has("bias") else np.zeros(hidden, np.float32)
    both = op.constant("bias", np.concatenate([bias, np.zeros_like(bias)])[None])
    start = _state(op, "initial_h", 1, hidden)
    made = op.inner("sequence"), op.inner("last")
    keys = {
        "hidden_size": hidden,
        "direction": op.text("direction", "forward"),
        "activations": [activation],
    }
    op.write("RNN", op.tensor("x"), *weights, both, "", start, outputs=made, **keys)
    _joined(op, made, 1)


def _joined(op: SourceOperation, made: tuple[str, ...], ways: int) -> None:
    """Bring the results into a program's shapes."""
    steps, batch = op.value("x").shape[:2]
    hidden = op.value("weight_hh").shape[1]
    whole = op.flag("output_sequence")
    perm = [0, 2, 1, 3] if whole else [1, 0, 2]
    turned = op.write("Transpose", made[0] if whole else made[1], inner="turned", perm=perm)
    op.write("Reshape", turned, [steps if whole else 1, batch, ways * hidden])
    for place, name in enumerate(made[1:], 1):
        if place < len(op.results):
            turned = op.write("Transpose", name, inner=f"turned {place}", perm=[1, 0, 2])
            shape = [batch, ways * hidden]
            op.write("Reshape", turned, shape, outputs=[op.results[place]])


def _state(op: SourceOperation, name: str, ways: int, hidden: int) -> str:
    shape = [op.shape("x")[1], ways, hidden]
    apart = op.write("Reshape", op.tensor(name), shape, inner=f"{name} apart")
    return op.write("Transpose", apart, inner=name, perm=[1, 0, 2])


def _gates(values: np.ndarray) -> np.ndarray:
    entry, forget, out, cell = np.split(values, _GATES)
    return np.concatenate([entry, out, forget, cell])


LAYERS: dict[str, Translation] = {
    "avg_pool": _pool("AveragePool"),
    "batch_norm": _channel_norm(
        "BatchNormalization(x, gamma, beta, mean, variance, epsilon=epsilon)"
    ),
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "instance_norm": _channel_norm("InstanceNormalization(x, gamma, beta, epsilon=epsilon)"),
    "l2_norm": "Div(x, Sqrt(Add(ReduceSum(Mul(x, x), [-3, -2, -1]), epsilon)))",
    "layer_norm": _layer_norm,
    "lstm": _lstm,
    "max_pool": _pool("MaxPool"),
    "rnn": _rnn,
}
