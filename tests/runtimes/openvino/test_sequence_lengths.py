"""Recurrent layers over sequences of several lengths, against onnxruntime."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
from onnx import TensorProto, helper, numpy_helper

from convkit.runtimes.openvino.sequence_lengths import respect_lengths

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
HIDDEN, INPUTS = 5, 3


def write(file: Path, operator: str, direction: str, *, from_sizes: bool = False) -> list[str]:
    """Write a model of one layer; return the names of its outputs."""
    generator = np.random.default_rng(0)
    count = 2 if direction == "bidirectional" else 1
    gates = GATES[operator]
    shapes = {
        "W": (count, gates * HIDDEN, INPUTS),
        "R": (count, gates * HIDDEN, HIDDEN),
        "B": (count, 2 * gates * HIDDEN),
    }
    weights = [
        numpy_helper.from_array(generator.normal(size=shape).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    outputs = ["Y", "last", "cell"] if operator == "LSTM" else ["Y", "last"]
    options = {"linear_before_reset": 1} if operator == "GRU" else {}
    lengths = "" if from_sizes else "lengths"
    node = helper.make_node(
        operator,
        ["x", "W", "R", "B", lengths],
        outputs,
        hidden_size=HIDDEN,
        direction=direction,
        **options,
    )
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["t", "b", INPUTS])]
    if not from_sizes:
        inputs.append(helper.make_tensor_value_info("lengths", TensorProto.INT32, ["b"]))
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph([node], "layer", inputs, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, file)
    return outputs


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("operator", GATES)
def test_a_layer_ends_where_its_sequence_does(
    operator: str, direction: str, tmp_path: Path
) -> None:
    file = tmp_path / "layer.onnx"
    outputs = write(file, operator, direction)
    model = openvino.Core().read_model(file)
    assert respect_lengths(model) == 1
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    for steps, lengths in ((7, [7, 4, 2]), (6, [3, 1]), (1, [1])):
        x = np.random.default_rng(steps).normal(size=(steps, len(lengths), INPUTS))
        feeds = {"x": x.astype(np.float32), "lengths": np.array(lengths, np.int32)}
        expected = session.run(outputs, feeds)
        found = compiled(feeds)
        for name, values in zip(outputs, expected, strict=True):
            np.testing.assert_allclose(found[name], values, atol=2e-6, err_msg=name)


def test_a_layer_over_whole_sequences_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "layer.onnx"
    write(file, "LSTM", "bidirectional", from_sizes=True)
    assert respect_lengths(openvino.Core().read_model(file)) == 0
