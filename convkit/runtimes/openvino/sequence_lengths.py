"""Recurrent layers over sequences of several lengths: with axes that vary, OpenVINO 2026.4 runs
each to the end of the longest, as if no lengths were given.

Each direction becomes a layer of its own over whole sequences. What it gives at padding is replaced
by zeros, the last state is the one at a sequence's last place, and a layer that runs backwards runs
forwards over sequences that were turned around within their lengths.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import openvino

# Inputs of the sequences, and which of them have an axis of directions: states, weights and biases.
_LENGTHS = {"LSTMSequence": 3, "GRUSequence": 2, "RNNSequence": 2}
_STATE_AXIS = 1  # of [batch, directions, hidden]
# A gate's weight for being padding: its sigmoid is 0 or 1 in every float type.
_SURE = 1.0e4


def respect_lengths(model: "openvino.Model") -> int:
    """Rewrite recurrent layers whose lengths are an input of the model or computed from its
    values; return how many there are.
    """
    found = 0
    for node in model.get_ordered_ops():
        place = _LENGTHS.get(node.get_type_name())
        if place is not None and _varies(node.input_value(place).get_node()):
            _rewrite(node, place)
            found += 1
    return found


def _varies(node: "openvino.Node") -> bool:
    """Return True if a value depends on the inputs' values, or is not the same everywhere."""
    return depends_on_values(node) or (
        node.get_type_name() == "Constant" and len(set(node.data.flat)) > 1
    )


def depends_on_values(node: "openvino.Node") -> bool:
    """Return True if a value depends on more than the sizes of the inputs."""
    seen: set[str] = set()
    left = [node]
    while left:
        each = left.pop()
        kind = each.get_type_name()
        if kind == "Parameter":
            return True
        if kind == "ShapeOf" or each.get_name() in seen:
            continue
        seen.add(each.get_name())
        left += [value.get_node() for value in each.input_values()]
    return False


def _rewrite(node: "openvino.Node", place: int) -> None:
    from openvino import opset13 as ops

    directions = {"forward": (False,), "reverse": (True,)}.get(
        str(node.get_attributes()["direction"]), (False, True)
    )
    made = [
        _direction(node, place, number, is_backward=backward)
        for number, backward in enumerate(directions)
    ]
    for number, results in enumerate(zip(*made, strict=True)):
        old = node.output(number)
        readers = list(old.get_target_inputs())
        if not readers:
            continue
        whole = results[0] if len(results) == 1 else ops.concat(list(results), _STATE_AXIS)
        whole.set_friendly_name(f"{node.get_friendly_name()}/{number}")
        names = old.get_tensor().get_names()
        for reader in readers:
            reader.replace_source_output(whole.output(0))
        old.get_tensor().set_names(set())
        whole.output(0).get_tensor().set_names(names)


def _direction(
    node: "openvino.Node", place: int, number: int, *, is_backward: bool
) -> list["openvino.Node"]:
    """Return the results of one of a layer's directions: outputs, last state, and LSTM's cell."""
    from openvino import opset13 as ops

    given = node.input_values()
    lengths = ops.convert(given[place], "i64")
    values = given[0]
    if is_backward:
        values = ops.reverse_sequence(values, lengths, 0, 1)
    states = [_one(each, number, _STATE_AXIS) for each in given[1:place]]
    weights = [_one(each, number, 0) for each in given[place + 1 :]]
    sizes = ops.shape_of(values, "i64")
    length = ops.gather(sizes, np.int64(1), np.int64(0))
    full = ops.broadcast(length, ops.shape_of(lengths, "i64"))
    made = _sequence(node, [values, *states, full, *weights])
    steps = ops.range(np.int64(0), length, np.int64(1), "i64")
    is_there = ops.less(ops.unsqueeze(steps, np.int64(0)), ops.unsqueeze(lengths, np.int64(1)))
    last = ops.subtract(lengths, np.int64(1))
    outputs = ops.squeeze(made.output(0), np.int64(1))
    state = ops.gather(outputs, last, np.int64(1), batch_dims=1)
    if is_backward:
        outputs = ops.reverse_sequence(outputs, lengths, 0, 1)
    zero = ops.constant(0.0, dtype=given[0].get_element_type())
    kept = ops.select(ops.unsqueeze(is_there, np.int64(2)), outputs, zero)
    results = [ops.unsqueeze(kept, np.int64(1)), ops.unsqueeze(state, np.int64(1))]
    if node.get_type_name() == "LSTMSequence":
        is_read = bool(node.output(2).get_target_inputs())
        results.append(
            _cell(node, values, states, full, weights, is_there)
            if is_read
            else _apart(made.output(2))
        )
    return results


def _cell(
    node: "openvino.Node",
    values: Any,  # noqa: ANN401 - OpenVINO's functions take nodes, outputs and arrays
    states: list[Any],
    full: Any,  # noqa: ANN401
    weights: list[Any],
    is_there: Any,  # noqa: ANN401
) -> Any:  # noqa: ANN401
    """Return LSTM's last cell: run again, with a feature that says what is padding, where nothing
    is forgotten and nothing added.
    """
    from openvino import opset13 as ops

    is_padding = ops.logical_not(ops.unsqueeze(is_there, np.int64(2)))
    padding = ops.convert_like(is_padding, values)
    hidden = int(node.get_attributes()["hidden_size"])
    column = np.zeros((1, 4 * hidden, 1), np.float32)
    column[:, :hidden] = _SURE  # gates in OpenVINO's order: forget, input, cell, output
    column[:, hidden : 2 * hidden] = -_SURE
    wide = ops.concat([values, padding], -1)
    more = [ops.concat([weights[0], ops.convert_like(column, values)], -1), *weights[1:]]
    made = _sequence(node, [wide, *states, full, *more])
    return _apart(made.output(2))


def _sequence(node: "openvino.Node", inputs: list[Any]) -> "openvino.Node":
    """Return a layer like another that runs forwards."""
    from openvino import opset13 as ops

    given = node.get_attributes()
    functions = list(given["activations"])
    count = {"LSTMSequence": 3, "GRUSequence": 2, "RNNSequence": 1}[node.get_type_name()]
    options = {
        "activations": functions[:count],
        "activations_alpha": list(given["activations_alpha"])[:count],
        "activations_beta": list(given["activations_beta"])[:count],
        "clip": float(given["clip"]),
    }
    make = {
        "LSTMSequence": ops.lstm_sequence,
        "GRUSequence": ops.gru_sequence,
        "RNNSequence": ops.rnn_sequence,
    }[node.get_type_name()]
    if node.get_type_name() == "GRUSequence":
        options["linear_before_reset"] = bool(given["linear_before_reset"])
    made: openvino.Node = make(*inputs, int(given["hidden_size"]), "forward", **options)
    return made


def _one(value: Any, number: int, axis: int) -> Any:  # noqa: ANN401
    """Return one direction's part of states or weights."""
    from openvino import opset13 as ops

    if value.get_partial_shape()[axis].get_length() == 1:
        return value
    return ops.gather(value, np.array([number], np.int64), np.int64(axis))


def _apart(output: Any) -> Any:  # noqa: ANN401
    """Return one of a node's outputs as a node."""
    from openvino import opset13 as ops

    return ops.squeeze(ops.unsqueeze(output, np.int64(0)), np.int64(0))
