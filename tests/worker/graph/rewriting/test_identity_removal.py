"""Identity nodes go, except those that a body or an output needs."""

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest

from convkit.worker.graph.rewriting.identity_removal import remove_identities

HEAD = '<ir_version: 8, opset_import: ["" : 17]> g (float[2] x, bool c) => '
X = np.array([1.0, -2.0], np.float32)


@pytest.mark.parametrize(
    ("graph", "left"),
    [
        pytest.param("(float[2] y) { a = Relu(x) b = Identity(a) y = Neg(b) }", 0, id="inner"),
        pytest.param("(float[2] y) { a = Relu(x) y = Identity(a) }", 0, id="output"),
        pytest.param("(float[2] y) { y = Identity(x) }", 1, id="input-returned"),
        pytest.param("(float[2] y, float[2] z) { y = Relu(x) z = Identity(y) }", 1, id="copy"),
        pytest.param(
            "(float[2] y, float[2] z) { a = Relu(x) y = Identity(a) b = Identity(a)"
            " z = Identity(b) }",
            1,
            id="two-copies",
        ),
        pytest.param(
            "(float[2] y) { a = Relu(x) y = If (c) <then_branch = t () => (float[2] p)"
            " { q = Identity(a) p = Identity(q) }, else_branch = e () => (float[2] r)"
            " { s = Neg(a) r = Identity(s) }> }",
            1,
            id="a-branch-returns-what-is-around-it",
        ),
    ],
)
def test_what_is_needed_stays_and_the_results_are_the_same(graph, left):
    before = onnx.parser.parse_model(HEAD + graph)
    model = onnx_ir.serde.deserialize_model(before)
    remove_identities(model)
    after = onnx_ir.serde.serialize_model(model)
    kinds = [node.op_type for node in onnx_ir.traversal.RecursiveGraphIterator(model.graph)]
    assert kinds.count("Identity") == left
    assert {node.domain for node in model.graph} == {""}
    names = [value.name for value in before.graph.output]
    assert [value.name for value in after.graph.output] == names
    for chosen in (True, False):
        results = [run(each, chosen) for each in (before, after)]
        for one, other in zip(*results, strict=True):
            np.testing.assert_array_equal(one, other)


def run(model, chosen):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, {"x": X, "c": np.array(chosen)})
