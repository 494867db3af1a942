"""Faults inside the branches of an If are found like any other."""

import numpy as np
import onnx
import onnx.parser
import onnx_ir
from faults.mutants.models import ARCHITECTURES
from faults.mutants.scoring import EQUIVALENT, subject
from onnx import helper, numpy_helper

from convkit.worker.cause.cause_search import localize
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.graphs.taken_branches import with_taken_branches
from convkit.worker.cause.search_types.search_results import Diagnosis

ENCODER = subject(next(each for each in ARCHITECTURES if each.name == "encoder"))
NORM = "/layers.1/first/LayerNormalization"


def branched(change: dict[str, float], side: str) -> onnx.ModelProto:
    """Return the encoder with a layer norm inside an If, with `change` made to its attributes.

    The first word decides by its number, which holds in the case that is searched for one side.
    """
    model = onnx.ModelProto()
    model.CopyFrom(ENCODER.model)
    place = next(i for i, node in enumerate(model.graph.node) if node.name == NORM)
    norm = model.graph.node[place]
    (value,) = norm.output
    branches = {}
    for name in ("then_branch", "else_branch"):
        inner = onnx.NodeProto()
        inner.CopyFrom(norm)
        inner.output[0] = "normalized"  # both branches may use the same names
        if name == side:
            for attribute in inner.attribute:
                attribute.f = change.get(attribute.name, attribute.f)
        result = helper.make_tensor_value_info("normalized", onnx.TensorProto.FLOAT, None)
        branches[name] = helper.make_graph([inner], name, [], [result])
    first = helper.make_node("ReduceMax", ["ids"], ["largest"], keepdims=0)
    zero = helper.make_node(
        "Constant", [], ["zero"], value=numpy_helper.from_array(np.asarray(0, np.int64))
    )
    positive = helper.make_node("Greater", ["largest", "zero"], ["positive"])
    chosen = helper.make_node("If", ["positive"], [value], name="/choice", **branches)
    del model.graph.node[place]
    for offset, node in enumerate((first, zero, positive, chosen)):
        model.graph.node.insert(place + offset, node)
    return model


def diagnosed(model: onnx.ModelProto) -> Diagnosis:
    graph = make_graph(onnx_ir.from_proto(model))
    return localize(ENCODER.recordings[0], graph, ENCODER.feeds[0], ENCODER.state)


def test_a_fault_in_the_branch_that_is_taken_is_named_at_its_node() -> None:
    cause = diagnosed(branched({"epsilon": 1e-2}, "then_branch")).causes[0]
    assert (cause.kind, cause.node) == ("attribute", NORM)
    assert "epsilon is 0.01 and should be 1e-05" in cause.text


def test_a_fault_in_the_other_branch_is_no_cause() -> None:
    diagnosis = diagnosed(branched({"epsilon": 1e-2}, "else_branch"))
    assert diagnosis.error < EQUIVALENT
    assert diagnosis.causes == ()


NESTED = """
<ir_version: 8, opset_import: ["" : 17]>
agraph (float[3] x, bool outer, bool inner) => (float[3] y) {
  two = Constant<value_float=2.0>()
  y = If(outer) <
    then_branch = first () => (float[3] chosen) {
      chosen = If(inner) <
        then_branch = deep () => (float[3] z) { t = Constant<value_float=3.0>() z = Mul(x, t) },
        else_branch = same () => (float[3] x2) { x2 = Identity(x) }
      >
    },
    else_branch = second () => (float[3] z) { z = Add(x, two) }
  >
}
"""


def test_nested_branches_compute_what_they_did() -> None:
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(NESTED)))
    x = np.arange(3, dtype=np.float32)
    for outer in (True, False):
        for inner in (True, False):
            feeds = {"x": x, "outer": np.asarray(outer), "inner": np.asarray(inner)}
            opened = with_taken_branches(graph, feeds)
            assert all(node.op_type != "If" for node in opened.nodes)
            expected = graph.run(["y"], feeds)["y"]
            np.testing.assert_array_equal(opened.run(["y"], feeds)["y"], expected)


def test_a_condition_that_cannot_be_computed_leaves_its_branches_alone() -> None:
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(NESTED)))
    opened = with_taken_branches(graph, {"x": np.zeros(3, np.float32)})
    assert [node.op_type for node in opened.nodes] == ["If"]
