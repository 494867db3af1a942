"""Formulas and constants become nodes."""

import numpy as np
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from convkit.worker.graph.operators.composed_operators import GELU, GELU_TANH, strided_slice
from convkit.worker.graph.operators.formulas import OPSET
from convkit.worker.graph.operators.node_builder import NodeBuilder

X = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)


def computed(builder: NodeBuilder) -> np.ndarray:
    kind = helper.np_dtype_to_tensor_dtype(X.dtype)
    graph = helper.make_graph(
        builder.nodes,
        "g",
        [helper.make_tensor_value_info("x", kind, X.shape)],
        [helper.make_tensor_value_info(builder.out, kind, None)],
        [numpy_helper.from_array(value, name) for name, value in builder.constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
    (result,) = ReferenceEvaluator(model).run(None, {"x": X})
    return result


def test_equal_parts_of_a_formula_are_computed_once() -> None:
    builder = NodeBuilder("y")
    builder.compute("Add(Mul(Exp(x), Exp(x)), Softmax(Exp(x), axis=0))", x="x")
    assert [node.op_type for node in builder.nodes] == ["Exp", "Mul", "Softmax", "Add"]
    assert len({name for node in builder.nodes for name in node.output}) == 4
    exponential = np.exp(X)
    softmax = np.exp(exponential) / np.exp(exponential).sum(axis=0)
    assert np.allclose(computed(builder), exponential**2 + softmax)


def test_both_forms_of_gelu_are_nearly_the_same() -> None:
    exact, tanh = NodeBuilder("y"), NodeBuilder("y")
    exact.compute(GELU, x="x")
    tanh.compute(GELU_TANH, x="x")
    assert 0 < np.abs(computed(exact) - computed(tanh)).max() < 1e-3


def test_operands_that_are_numbers_are_constants_in_the_operator_s_own_words() -> None:
    builder = NodeBuilder("y")
    builder.write("Reshape", builder.write("ReduceMax", "x", [1], inner="most"), [-1])
    assert {name: value.tolist() for name, value in builder.constants.items()} == {
        "y//axes": [1],
        "y//shape": [-1],
    }
    assert np.array_equal(computed(builder), X.max(axis=1))


@pytest.mark.parametrize("formula", ["Mul(x, z)", "Softmax(x, axis=z)"])
def test_a_name_that_a_formula_is_not_given_is_refused(formula: str) -> None:
    with pytest.raises(KeyError, match="z of"):
        NodeBuilder("y").compute(formula, x="x")


@pytest.mark.parametrize(
    ("cuts", "masks", "expected"),
    [
        (([1, 3], [2, 0], [1, -1]), {}, X[1:2, 3:0:-1]),
        (([1, 2], [2, 0], [1, -1]), {"from_start": {1}, "to_end": {1}}, X[1:2, ::-1]),
        (([-1, 1], [0, 3], [1, 1]), {"dropped": {0}}, X[-1, 1:3]),
        (([0, 0], [1, 1], [1, 1]), {"to_end": {0, 1}}, X),
    ],
)
def test_a_strided_slice_is_numpy_s(cuts: tuple, masks: dict, expected: np.ndarray) -> None:
    builder = NodeBuilder("y")
    strided_slice(builder, "x", X.shape, cuts, **masks)
    assert np.array_equal(computed(builder), expected)
