"""Bodies of If, Loop, Scan and functions in a lower precision."""

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from lowering_graphs import F16, F32, model_text, values, with_modules

from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.lint.onnx_checker import check_types
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.lowering.graph_conversion import convert_file
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan

IF = model_text(
    """a = Exp(x)
    z = If (c) <then_branch = t () => (float[N, 2] p) { [then] p = Mul(a, x) },
                else_branch = e () => (float[N, 2] q) { k = Constant<value = float[1] {2.0}>()
                                                        [else] q = Add(a, k) }>
    y = Neg(z)""",
    "bool c, float[N, 2] x",
)
LOOP = model_text(
    """n = Constant<value = int64 {3}>()
    t = Constant<value = bool {1}>()
    last, all = Loop (n, t, x) <body = body (int64 i, bool go, float[N, 2] h)
                                            => (bool on, float[N, 2] g, float[N, 2] s) {
        on = Identity(go)
        g = Add(h, x)
        s = Mul(g, g)
    }>
    y = Neg(last)""",
    result="float[N, 2] y, float[T, N, 2] all",
)  # fmt: skip
SCAN = model_text(
    """last, rows = Scan <num_scan_inputs = 1,
        body = body (float[2] h, float[2] r) => (float[2] g, float[2] o) {
        g = Add(h, r)
        o = Exp(g)
    }> (start, x)
    y = Neg(rows)""",
    result="float[N, 2] y",
    constants="float[2] start = {0.5, 0.25}",
)
FUNCTION = """<ir_version: 9, opset_import: ["": 18, "own": 1]>
g (float[N, 2] x) => (float[N, 2] y) { a = own.half_square(x)
    y = own.half_square(a) }
<domain: "own", opset_import: ["": 18]>
half_square (v) => (w) { k = Constant<value = float {0.5}>()
    s = Mul(v, v)
    w = Mul(s, k) }"""


@pytest.mark.parametrize("text", [IF, LOOP, SCAN, FUNCTION], ids=["if", "loop", "scan", "function"])
@pytest.mark.parametrize("keep", [(), ("**",)], ids=["low", "kept"])
def test_subgraphs_and_functions_are_converted(lower, run, text, keep):
    low = lower(text, keep=keep)
    x = np.array([[0.5, -1], [0.25, 1.5]], np.float32)
    computed = [
        value.dtype
        for node in low.graph.all_nodes()
        for value in node.outputs
        if node.op_type != "Cast"
    ]
    assert (F16 in computed) is (not keep)
    for choice in (True, False):
        feeds = {"x": x} | ({"c": np.array(choice)} if "bool c" in text else {})
        expected = run(prepare(ir.from_onnx_text(text)), **feeds)
        for ours, theirs in zip(run(low, **feeds), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=5e-3)


def test_a_body_and_its_outer_node_may_differ(lower, run):
    modules = ["", "outer", "then", "", "else", ""]
    low = lower(with_modules(IF, *modules), keep=("outer", "then"))
    found = values(low)
    assert [found[name].dtype for name in ("a", "z", "p")] == [F16, F32, F32]
    x = np.array([[0.5, -1]], np.float32)
    np.testing.assert_allclose(run(low, c=np.array(False), x=x)[0], -(np.exp(x) + 2), rtol=2e-3)


def test_a_value_captured_by_branches_is_cast_once_where_it_is_made(lower):
    modules = ["low", "high", "high", "high", "high", "low"]
    low = lower(with_modules(IF, *modules), keep=("high",))
    (cast,) = [
        node
        for node in low.graph.all_nodes()
        if node.op_type == "Cast" and node.inputs[0].name == "a"
    ]
    assert cast.graph is low.graph


def test_a_branch_that_gives_a_constant_gives_it_in_the_right_type(lower, run):
    text = model_text(
        """z = If (c) <then_branch = t () => (float[2] p) {
                           p = Constant<value = float[2] {1.0, 2.0}>() },
                       else_branch = e () => (float[2] q) { i = Cast<to = 6>(x)
                                                            q = Cast<to = 1>(i) }>
        y = Exp(z)""",
        "bool c, float[2] x",
        "float[2] y",
    )
    low = lower(text)
    x = np.array([3, 4], np.float32)
    np.testing.assert_allclose(run(low, c=np.array(True), x=x)[0], np.exp([1, 2]), rtol=2e-3)
    np.testing.assert_allclose(run(low, c=np.array(False), x=x)[0], np.exp([3, 4]), rtol=2e-3)


def test_sibling_bodies_that_share_a_name_are_told_apart():
    text = model_text(
        """y = If (c) <then_branch = t () => (float[N, 2] p) { p = Exp(x) },
                      else_branch = e () => (float[N, 2] p) { p = Neg(x) }>""",
        "bool c, float[N, 2] x",
    )
    names = [
        value.name
        for node in prepare(ir.from_onnx_text(text)).graph.all_nodes()
        for value in node.outputs
    ]
    assert len(set(names)) == len(names)


def test_wrong_shapes_that_a_file_claims_in_a_body_do_no_harm(run, tmp_path):
    """As Paddle writes them: the body's values are said to be scalars, and runtimes compute."""
    text = model_text(
        """a = Exp(x)
        z = If (c) <then_branch = t () => (float p) { p = Mul(a, x) },
                    else_branch = e () => (float q) { q = Add(a, x) }>
        y = Neg(z)""",
        "bool c, float[N, 2] x",
    )
    source, lowered = tmp_path / "source.onnx", tmp_path / "lowered.onnx"
    ir.save(ir.from_onnx_text(text), source)
    convert_file(prepare(load_model(source)), lowered, PrecisionPlan("float16", ()))
    x = np.array([[0.5, -1]], np.float32)
    (found,) = run(ir.load(lowered), c=np.array(True), x=x)
    np.testing.assert_allclose(found, -np.exp(x) * x, rtol=5e-3)
    wrong = onnx.load(lowered)
    cast = next(node for node in wrong.graph.node if node.op_type == "Cast")
    cast.attribute[0].i = onnx.TensorProto.DOUBLE
    onnx.save(wrong, lowered)
    with pytest.raises(onnx.shape_inference.InferenceError):  # types still count
        check_types(lowered)
