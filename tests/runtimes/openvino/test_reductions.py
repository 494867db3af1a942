"""Reductions that OpenVINO translates without their axes are computed over the right ones, and
equal values are in their order.
"""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from convkit.runtimes.openvino.ir import read_graph
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.operator_probes import graph_operators

ov = pytest.importorskip("openvino")

OPERATORS = ("ReduceL1", "ReduceLogSum", "ReduceLogSumExp")


def reduction(
    path: Path, operator: str, opset: int, axes: list[int] | None, *, keep: bool = False
) -> Path:
    """Write a graph of one reduction of [batch, 3, 5]."""
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 3, 5])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)
    values, constants, attributes = ["x"], [], {"keepdims": int(keep)}
    if axes is not None and opset >= 18:
        values.append("axes")
        constants.append(onnx.numpy_helper.from_array(np.array(axes, np.int64), "axes"))
    elif axes is not None:
        attributes["axes"] = axes
    node = helper.make_node(operator, values, ["y"], **attributes)
    graph = helper.make_graph([node], "g", [given], [result], constants)
    opsets = [helper.make_opsetid("", opset)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("opset", [13, 17, 18])
@pytest.mark.parametrize(
    ("axes", "keep"), [([-1], False), ([1, 2], True), ([0], False), (None, False), (None, True)]
)
def test_a_reduction_is_that_of_onnxruntime(
    tmp_path: Path, operator: str, opset: int, axes: list[int] | None, keep: bool
) -> None:
    path = reduction(tmp_path / "model.onnx", operator, opset, axes, keep=keep)
    model = read_graph(path, graph_operators(load_model(path)))
    x = np.random.default_rng(1).uniform(0.5, 90, (2, 3, 5)).astype(np.float32)
    found = ov.Core().compile_model(model, "CPU")(x)[0]
    (expected,) = onnxruntime.InferenceSession(path).run(None, {"x": x})
    assert found.shape == expected.shape
    assert found == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("operator", OPERATORS)
def test_openvino_still_ignores_the_axes(tmp_path: Path, operator: str) -> None:
    """Once this fails, the correction is no longer needed."""
    model = read_graph(reduction(tmp_path / "model.onnx", operator, 17, [-1]))
    assert len(model.outputs[0].get_partial_shape()) == 0


@pytest.mark.parametrize("largest", [0, 1])
def test_equal_values_are_in_their_order(tmp_path: Path, largest: int) -> None:
    given = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 64])
    result = helper.make_tensor_value_info("y", onnx.TensorProto.INT64, None)
    count = onnx.numpy_helper.from_array(np.array([64], np.int64), "k")
    node = helper.make_node("TopK", ["x", "k"], ["", "y"], largest=largest)
    graph = helper.make_graph([node], "g", [given], [result], [count])
    path = tmp_path / "model.onnx"
    opsets = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    x = np.random.default_rng(0).integers(0, 3, (4, 64)).astype(np.float32)
    model = read_graph(path, graph_operators(load_model(path)))
    (found,) = ov.compile_model(model, "CPU")(x).values()
    order = -x if largest else x
    np.testing.assert_array_equal(found, np.argsort(order, -1, kind="stable"))
