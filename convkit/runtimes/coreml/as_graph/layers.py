"""Convolutions, pooling, normalizations and recurrent layers as ONNX nodes."""

import numpy as np

from convkit.worker.cause.other_formats.operation_writing import NotTranslatedError, SourceOperation
from convkit.worker.cause.other_formats.source_model import Translation

_AUTO = {"same": "SAME_UPPER", "same_lower": "SAME_LOWER", "valid": "VALID"}
_GATES = 4
_RECURRENT = {"relu": "Relu", "sigmoid": "Sigmoid", "tanh": "Tanh"}


def _padding(op: SourceOperation) -> dict[str, object]:
    """Return padding as attributes: explicit pads where there are any, so that they can be
    compared.
    """
    kind = op.text("pad_type", "valid").lower()
    if kind != "custom":
        return {"auto_pad": _AUTO[kind]}
    flat = op.integers("pad")
    return {"pads": [*flat[::2], *flat[1::2]]}


def _conv(op: SourceOperation) -> None:
    op.write(
        "Conv",
        *(op.tensor(name) for name in ("x", "weight", "bias") if op.has(name)),
        attributes={
            "strides": op.integers("strides"),
            "dilations": op.integers("dilations"),
            "group": op.integer("groups", 1),
            **_padding(op),
        },
    )


def _conv_transpose(op: SourceOperation) -> None:
    keys = _padding(op)
    if "auto_pad" in keys and keys["auto_pad"] != "VALID":
        raise NotTranslatedError("padding to the same size")
    x, weight, made = op.value("x"), op.value("weight"), op.result()
    strides, dilations = op.integers("strides"), op.integers("dilations")
    rank = len(strides)
    pads = keys.get("pads", [0] * 2 * rank)
    assert isinstance(pads, list)
    spans = zip(x.shape[2:], weight.shape[2:], strides, dilations, strict=True)
    full = [(size - 1) * step + (width - 1) * gap + 1 for size, width, step, gap in spans]
    more = [
        made.shape[2 + axis] - (full[axis] - pads[axis] - pads[axis + rank]) for axis in range(rank)
    ]
    op.write(
        "ConvTranspose",
        *(op.tensor(name) for name in ("x", "weight", "bias") if op.has(name)),
        attributes={
            "strides": strides,
            "dilations": dilations,
            "group": op.integer("groups", 1),
            "pads": pads,
            "output_padding": more,
        },
    )


def _pool(operator: str) -> Translation:
    def translate(op: SourceOperation) -> None:
        more: dict[str, object] = {}
        if operator == "AveragePool":
            more["count_include_pad"] = int(not op.flag("exclude_padding_from_average"))
        keys = {
            "kernel_shape": op.integers("kernel_sizes"),
            "strides": op.integers("strides"),
            "ceil_mode": int(op.flag("ceil_mode")),
            **_padding(op),
            **more,
        }
        op.write(operator, op.tensor("x"), attributes=keys)

    return translate


def _layer_norm(op: SourceOperation) -> None:
    x = op.value("x")
    given = op.integers("axes") if op.has("axes") else range(x.ndim)
    axes = sorted(axis % x.ndim for axis in given)
    shape = tuple(x.shape[axis] for axis in axes)
    # ONNX normalizes over the last axes: others are moved there, and back.
    moved = [*(axis for axis in range(x.ndim) if axis not in axes), *axes]
    is_last = moved == list(range(x.ndim))
    keys = {"axis": -len(axes), "epsilon": op.number("epsilon")}
    gamma = op.tensor("gamma") if op.has("gamma") else op.constant("1", np.ones(shape, np.float32))
    beta = [op.tensor("beta")] if op.has("beta") else []
    if is_last:
        op.write("LayerNormalization", op.tensor("x"), gamma, *beta, attributes=keys)
        return
    last = op.write("Transpose", op.tensor("x"), to=op.inner("moved"), attributes={"perm": moved})
    to = op.inner("normalized")
    made = op.write("LayerNormalization", last, gamma, *beta, to=to, attributes=keys)
    back = [moved.index(axis) for axis in range(x.ndim)]
    op.write("Transpose", made, attributes={"perm": back})


def _batch_norm(op: SourceOperation) -> None:
    channels = op.value("x").shape[1]
    gamma = _scale(op, "gamma", np.ones(channels, np.float32))
    beta = _scale(op, "beta", np.zeros(channels, np.float32))
    numbers = (gamma, beta, op.tensor("mean"), op.tensor("variance"))
    op.write("BatchNormalization", op.tensor("x"), *numbers, attributes=_epsilon(op))


def _instance_norm(op: SourceOperation) -> None:
    channels = op.value("x").shape[1]
    gamma = _scale(op, "gamma", np.ones(channels, np.float32))
    beta = _scale(op, "beta", np.zeros(channels, np.float32))
    op.write("InstanceNormalization", op.tensor("x"), gamma, beta, attributes=_epsilon(op))


def _epsilon(op: SourceOperation) -> dict[str, float]:
    return {"epsilon": op.number("epsilon")}


def _scale(op: SourceOperation, name: str, otherwise: np.ndarray) -> str:
    return op.tensor(name) if op.has(name) else op.constant(name, otherwise)


def _l2_norm(op: SourceOperation) -> None:
    x = op.tensor("x")
    squares = op.write("Mul", x, x, to=op.inner("squares"))
    total = op.write("ReduceSum", squares, op.whole("axes", [-3, -2, -1]), to=op.inner("total"))
    shifted = op.write("Add", total, op.tensor("epsilon"), to=op.inner("shifted"))
    op.write("Div", x, op.write("Sqrt", shifted, to=op.inner("norm")))


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
    keys = {"hidden_size": hidden, "direction": direction, "activations": activations * len(ways)}
    op.write("LSTM", *inputs, "", *states, to=made, attributes=keys)
    _joined(op, made, len(ways))


def _rnn(op: SourceOperation) -> None:
    activation = op.text("activation", "tanh")
    if activation not in _RECURRENT:
        raise NotTranslatedError(activation)
    hidden = op.value("weight_hh").shape[1]
    weights = [op.constant(n, op.value(n)[None]) for n in ("weight_ih", "weight_hh")]
    bias = op.value("bias") if op.has("bias") else np.zeros(hidden, np.float32)
    both = op.constant("bias", np.concatenate([bias, np.zeros_like(bias)])[None])
    start = _state(op, "initial_h", 1, hidden)
    made = op.inner("sequence"), op.inner("last")
    keys = {
        "hidden_size": hidden,
        "direction": op.text("direction", "forward"),
        "activations": [_RECURRENT[activation]],
    }
    op.write("RNN", op.tensor("x"), *weights, both, "", start, to=made, attributes=keys)
    _joined(op, made, 1)


def _joined(op: SourceOperation, made: tuple[str, ...], ways: int) -> None:
    """Bring the results into a program's shapes."""
    steps, batch = op.value("x").shape[:2]
    hidden = op.value("weight_hh").shape[1]
    whole = op.flag("output_sequence")
    perm = [0, 2, 1, 3] if whole else [1, 0, 2]
    turned = op.write(
        "Transpose", made[0] if whole else made[1], to=op.inner("turned"), attributes={"perm": perm}
    )
    op.write("Reshape", turned, op.whole("shape", [steps if whole else 1, batch, ways * hidden]))
    for place, name in enumerate(made[1:], 1):
        if place < len(op.results):
            turned = op.write(
                "Transpose", name, to=op.inner(f"turned {place}"), attributes={"perm": [1, 0, 2]}
            )
            shape = op.whole(f"shape {place}", [batch, ways * hidden])
            op.write("Reshape", turned, shape, to=op.results[place])


def _state(op: SourceOperation, name: str, ways: int, hidden: int) -> str:
    shape = op.whole(f"{name} shape", [op.value("x").shape[1], ways, hidden])
    apart = op.write("Reshape", op.tensor(name), shape, to=op.inner(f"{name} apart"))
    return op.write("Transpose", apart, to=op.inner(name), attributes={"perm": [1, 0, 2]})


def _gates(values: np.ndarray) -> np.ndarray:
    entry, forget, out, cell = np.split(values, _GATES)
    return np.concatenate([entry, out, forget, cell])


LAYERS: dict[str, Translation] = {
    "avg_pool": _pool("AveragePool"),
    "batch_norm": _batch_norm,
    "conv": _conv,
    "conv_transpose": _conv_transpose,
    "instance_norm": _instance_norm,
    "l2_norm": _l2_norm,
    "layer_norm": _layer_norm,
    "lstm": _lstm,
    "max_pool": _pool("MaxPool"),
    "rnn": _rnn,
}
