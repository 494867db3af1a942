"""Sums of many float32 values in a runtime that loses digits, and what helps against it."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from convkit.worker.cause.graphs.runnable_graph import Graph, read_graph
from convkit.worker.verification.long_sums import long_sum_findings

SIZE = 1024


def summed(tmp_path, operator: str, shape: list[int | str], axes: list[int]) -> Graph:
    kept = [each for axis, each in enumerate(shape) if axis not in axes]
    graph = helper.make_graph(
        [helper.make_node(operator, ["x", "axes"], ["y"], keepdims=0, name="total")],
        "sums",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, kept)],
        [helper.make_tensor("axes", TensorProto.INT64, [len(axes)], axes)],
    )
    file = tmp_path / "sums.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8), file
    )
    return read_graph(file)


def values(*shape: int) -> np.ndarray:
    random = np.random.default_rng(0)
    return (0.1 + 0.001 * random.random(shape)).astype(np.float32)


@pytest.mark.parametrize(("operator", "reduce"), [("ReduceSum", np.sum), ("ReduceMean", np.mean)])
def test_a_sum_whose_kernel_loses_digits_is_named_with_a_form_that_does_not(
    operator, reduce, tmp_path
):
    graph = summed(tmp_path, operator, ["n", SIZE, SIZE], [1, 2])
    feeds = {"x": values(2, SIZE, SIZE)}
    expected = {"y": reduce(feeds["x"].astype(np.float64), axis=(1, 2)).astype(np.float32)}
    computed = graph.run(["y"], feeds)
    assert np.abs(computed["y"] / expected["y"] - 1).max() > 1e-6
    (found,) = long_sum_findings(graph, feeds, expected, computed, "typical")
    assert (found.code, found.place.node, found.evidence["owner"]) == ("N408", "total", "kernel")
    assert f"of {SIZE * SIZE} float32 values" in found.message
    word = operator.removeprefix("Reduce").lower()
    assert f"y = x.{word}(2, keepdim=True).{word}((1, 2))" in found.remedy.text
    assert found.remedy.proven
    assert found.evidence["after"] <= 0.1 * found.evidence["before"]


def test_a_difference_with_another_cause_is_left_to_the_search(tmp_path):
    graph = summed(tmp_path, "ReduceSum", ["n", SIZE, SIZE], [1, 2])
    feeds = {"x": values(1, SIZE, SIZE)}
    computed = graph.run(["y"], feeds)
    assert not long_sum_findings(graph, feeds, {"y": computed["y"] * 1.01}, computed, "typical")


def test_sums_of_few_values_are_none(tmp_path):
    graph = summed(tmp_path, "ReduceSum", ["n", 16, 16], [1, 2])
    feeds = {"x": values(1, 16, 16)}
    computed = graph.run(["y"], feeds)
    assert not long_sum_findings(graph, feeds, {"y": computed["y"] * 1.01}, computed, "typical")
