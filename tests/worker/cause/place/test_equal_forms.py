"""Other forms of nodes compute what the nodes do, and are taken only where they are right."""

import numpy as np
import onnx
import onnx_ir
import pytest

from convkit.worker.cause.graphs.runnable_graph import Graph, make_graph
from convkit.worker.cause.place.equal_forms import forms_of, with_forms, working_form
from convkit.worker.cause.place.whole_number_forms import remainders_first

WHOLE = np.arange(-6, 6).reshape(3, 4) * 11


def graph_of(kind: str, lines: str, opset: int = 18) -> Graph:
    text = f'<ir_version: 8, opset_import: ["" : {opset}]> g ({kind}[3, 4] x) => ({kind} y) {lines}'
    return make_graph(onnx_ir.from_proto(onnx.parser.parse_model(text)))


@pytest.mark.parametrize(
    ("kind", "lines", "opset"),
    [
        ("uint8", "<uint8 c = {77}> { y = Mul(x, c) }", 18),
        ("int8", "<int8 c = {77}> { y = Sub(x, c) }", 18),
        ("int8", "<int8 c = {77}> { y = Add(x, c) }", 17),
        ("int8", "{ y = Neg(x) }", 18),
        ("uint8", '<uint8 c = {3}> { y = BitShift<direction="LEFT">(x, c) }', 18),
        ("int64", "<int64 c = {-7}> { y = Mod(x, c) }", 18),
        ("int32", "<int32 c = {7}> { y = Mod<fmod=1>(x, c) }", 18),
        ("int64", "<int64[1] c = {1}> { y = ReduceSum<keepdims=0>(x, c) }", 18),
        ("int64", "{ y = ReduceSum(x) }", 18),
        ("int64", "{ y = ReduceMax<axes=[0], keepdims=0>(x) }", 13),
        ("int64", "<int64[1] c = {-1}> { y = ReduceMin(x, c) }", 18),
        ("int64", "<int64[4, 2] c = {1, 2, 3, 4, 5, 6, 7, 8}> { y = MatMul(x, c) }", 18),
        ("int64", "<int64 c = {3}> { y = Pow(x, c) }", 18),
        ("int64", "{ y = Sign(x) }", 18),
        ("int32", "{ y = Abs(x) }", 18),
        ("int64", "<int64 c = {-7}> { y = Clip(x, c) }", 18),
        ("int64", "<int64 c = {7}> { y = Clip(x, , c) }", 18),
        ("int64", "<int64 c = {-7}, int64 d = {9}> { y = Clip(x, c, d) }", 18),
        ("int64", "<int64 c = {-7}, int64[4] d = {1, -20, 30, 0}> { y = Max(x, c, d) }", 18),
        ("int32", "<int32 c = {7}> { y = Min(x, c) }", 18),
        ("float", "{ y = Softmax<axis=1>(x) }", 18),
        ("float", "{ y = Elu(x) }", 18),
        ("float", "<float[4] c = {1, 2, 3, 4}> { y = LayerNormalization(x, c) }", 18),
        ("float", "<int64[1] c = {1}> { y = ReduceL2(x, c) }", 18),
    ],
)
def test_a_form_computes_what_its_node_does(kind: str, lines: str, opset: int) -> None:
    graph = graph_of(kind, lines, opset)
    feeds = {"x": WHOLE.astype({"float": np.float32}.get(kind, kind))}
    expected = graph.run(["y"], feeds)["y"]
    forms = list(forms_of(graph, graph.nodes[-1], {**feeds, "y": expected}))
    assert forms
    for form in forms:
        found = with_forms(graph, {"y": form}).run(["y"], feeds)["y"]
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_a_bound_of_large_whole_numbers_has_a_form_that_onnxruntime_computes_right() -> None:
    """Of numbers from 2**31 to 2**32, onnxruntime 1.31 with AVX takes the bound for the larger."""
    lines = "<int64 c = {0}> { y = Clip(x, c) }"
    graph = graph_of("int64", lines)
    x = np.full((3, 4), 2**31 + 5, np.int64)
    forms = list(forms_of(graph, graph.nodes[-1], {"x": x, "y": x}))
    found = working_form(
        graph,
        graph.nodes[-1],
        {"x": x, "y": x},
        lambda made: np.array_equal(made.run(["y"], {"x": x})["y"], x),
    )
    assert found in forms
    assert found.text == "Write this line as y = torch.where(x < low, low, x)"


@pytest.mark.parametrize("changed", [(4, 6), (4, 12), (7, 6)])
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_a_smoothed_resize_is_a_product_for_each_axis(mode: str, changed: tuple[int, int]) -> None:
    sizes = f"1, 5, {changed[0]}, {changed[1]}"
    lines = f'<int64[4] s = {{{sizes}}}> {{ y = Resize<mode="{mode}", antialias=1>(x, , , s) }}'
    text = f'<ir_version: 8, opset_import: ["" : 18]> g (float[1, 5, 7, 12] x) => (float y) {lines}'
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(text)))
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 5, 7, 12)).astype(np.float32)}
    expected = graph.run(["y"], feeds)["y"]
    forms = [
        each
        for each in forms_of(graph, graph.nodes[-1], {**feeds, "y": expected})
        if "torch.eye" in each.text
    ]
    (form,) = forms
    found = with_forms(graph, {"y": form}).run(["y"], feeds)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_remainders_are_taken_of_each_operand_where_nothing_else_reads_the_product() -> None:
    lines = "<int64 c = {40503}, int64 k = {9}, int64 m = {97}> { a = Mul(x, c) b = Add(a, k) %s }"
    graph = graph_of("int64", lines % "y = Mod(b, m)")
    forms = remainders_first(graph, "a", {"x": WHOLE})
    found = with_forms(graph, forms).run(["y"], {"x": WHOLE})["y"]
    np.testing.assert_array_equal(found, (WHOLE * 40503 + 9) % 97)
    read_twice = graph_of("int64", lines % "r = Mod(b, m) y = Add(r, a)")
    assert not remainders_first(read_twice, "a", {"x": WHOLE})


def test_a_form_that_is_not_right_is_not_taken() -> None:
    graph = graph_of("uint8", "<uint8 c = {77}> { y = Mul(x, c) }")
    values = {"x": WHOLE.astype(np.uint8), "y": WHOLE.astype(np.uint8)}
    assert working_form(graph, graph.nodes[0], values, lambda _made: False) is None
    assert working_form(graph, graph.nodes[0], values, lambda _made: True) is not None


@pytest.mark.parametrize("opset", [17, 18])
@pytest.mark.parametrize("shape", [(2, 3, 50), (2, 3, 4, 5, 6)])
def test_an_instance_is_normalized_by_means_along_one_axis_each(
    shape: tuple[int, ...], opset: int
) -> None:
    sizes = ", ".join(map(str, shape))
    lines = (
        "<float[3] w = {1, 2, 3}, float[3] b = {0, 1, 2}> { y = InstanceNormalization(x, w, b) }"
    )
    text = (
        f'<ir_version: 8, opset_import: ["" : {opset}]> g (float[{sizes}] x) => (float y) {lines}'
    )
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(text)))
    feeds = {"x": np.random.default_rng(0).normal(3, 0.5, shape).astype(np.float32)}
    expected = graph.run(["y"], feeds)["y"]
    forms = forms_of(graph, graph.nodes[-1], {**feeds, "y": expected})
    (form,) = [each for each in forms if "one dimension after the other" in each.text]
    found = with_forms(graph, {"y": form}).run(["y"], feeds)["y"]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)
