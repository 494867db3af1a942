"""Of two explanations, the one with fewer fitted numbers is preferred; a node that others need is
not superfluous.
"""

import numpy as np
import onnx.parser
import onnx_ir
import pytest

from convkit.worker.cause.explanations.explanation_search import Explanation, explain
from convkit.worker.cause.explanations.inserted_steps import at_end
from convkit.worker.cause.explanations.missing_steps import left_out
from convkit.worker.cause.explanations.rewritten_nodes import wiring
from convkit.worker.cause.explanations.wrong_numbers import fractions
from convkit.worker.cause.graphs.runnable_graph import Graph, make_graph
from convkit.worker.cause.recording.recorded_call import Operation
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite

SHARED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[B, 8] x) => (float[B, 8] y{other}) {{
    h = Tanh (x)
    other = Exp (h)
    s = Sin (x)
    y = Add (h, s)
}}
"""
SCALED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[B, 8] x) => (float[B, 8] y) <float k = {0.37}> { y = Mul (x, k) }
"""
X = np.random.default_rng(5).normal(size=(3, 8)).astype(np.float32)
HALF = np.float32(0.5)


def graph_of(text: str) -> Graph:
    return make_graph(onnx_ir.from_proto(onnx.parser.parse_model(text)))


def explanation(after: float, fitted: int) -> Explanation:
    graph = graph_of(SCALED)
    return Explanation(Rewrite("constant", "y", "it", graph, fitted=fitted), 1.0, after)


@pytest.mark.parametrize(
    ("fitted", "after", "better"),
    [(0, 1e-7, True), (0, 3e-7, False), (1, 1e-7, False), (1, 1e-8, True), (2, 2e-8, False)],
)
def test_fitted_numbers_must_pay_for_themselves(fitted: int, after: float, better: bool) -> None:
    simple = explanation(1e-6 * 0.999, 0)
    assert explanation(after, fitted).is_clearly_better_than(simple) is better


def test_a_simpler_explanation_need_not_pay() -> None:
    assert explanation(1e-7, 0).is_clearly_better_than(explanation(1e-6, 2))


def test_a_number_that_was_fitted_is_counted() -> None:
    place = Region(graph_of(SCALED), "y", {"x": X}, X * np.float32(0.7312), (), {}, ("x",), {})
    found = {rewrite.text: rewrite.fitted for rewrite in fractions(place)}
    assert found["k is 0.37 and should be 0.7312"] == 1
    assert found["k is 0.37 and should be 0.001"] == 0
    shaped = Region(place.graph, "y", {"x": X}, X, (), {}, ("x",), {"y": X.shape})
    scales = {each.text: each.fitted for each in at_end(shaped)}
    assert scales["its output lacks Relu"] == 0
    assert [n for text, n in scales.items() if "multiplication by 2.7027" in text] == [1]


@pytest.mark.parametrize(
    ("other", "kind", "text"),
    [
        (", float[B, 8] other", "wiring", "it reads h and should read x"),
        ("", "extra", "Tanh h should not be there"),
    ],
    ids=["read elsewhere", "read here alone"],
)
def test_a_node_that_others_read_is_not_superfluous(other: str, kind: str, text: str) -> None:
    graph = graph_of(SHARED.format(other=other))
    if not other:
        kept = [node for node in graph.nodes if node.op_type != "Exp"]
        graph = graph.with_nodes(kept)
    shapes = dict.fromkeys(("x", "h", "s", "y"), X.shape)
    place = Region(graph, "y", {"x": X}, X + np.sin(X), (), {}, ("x",), shapes)
    right = [each for each in wiring(place) if place.error(each.graph) <= 1e-6]
    assert [(each.kind, each.text) for each in right] == [(kind, text)]


PASSED_ON = """
<ir_version: 8, opset_import: ["": 17]>
g (float[B, 8] x) => (float[B, 8] y) <float low = {0.1}> { y = Max (x, low) }
"""


def chain(*names: str) -> tuple[Operation, ...]:
    """Return operations of the original, each of which reads what the one before it computes."""
    return tuple(
        Operation(place, f"{name}.default", "", f"model.py:{place}", (place,), (place + 1,), ())
        for place, name in enumerate(names)
    )


@pytest.mark.parametrize(
    ("names", "texts"),
    [(["clamp"], []), (["sin", "clamp"], ["its input x lacks the original's sin (at model.py:0)"])],
    ids=["the result itself", "a step before it"],
)
def test_the_result_of_a_node_is_not_what_its_input_lacks(
    names: list[str], texts: list[str]
) -> None:
    graph = graph_of(PASSED_ON)
    values = [X, *([np.sin(X)] if len(names) > 1 else [])]
    expected = np.maximum(values[-1] if len(names) > 1 else X[:, ::-1] * HALF, np.float32(0.1))
    inner = dict(enumerate([*values, expected]))
    del inner[0]
    shapes = dict.fromkeys(("x", "y"), X.shape)
    place = Region(
        graph, "y", {"x": X}, expected, chain(*names), {}, ("x",), shapes, {}, inner, {"x": 0}
    )
    right = [each.text for each in left_out(place) if place.error(each.graph) <= 1e-6]
    assert right == texts


BRANCHED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[B, 8] x) => (float[B, 8] y) <float k = {4.0}> {
    z = Mul (x, k)
    s = Sigmoid (z)
    y = Mul (z, s)
}
"""
SHIFTED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[B, 8] x) => (float[B, 8] y) <float e = {0.001}> {
    s = Add (x, e)
    y = Log (s)
}
"""
SMALL = (np.abs(X) + 1).astype(np.float32)
SHAPES = {"x": X.shape, "z": X.shape, "s": X.shape, "y": X.shape}


def test_a_superfluous_node_is_not_mistaken_for_one_that_does_nothing_here() -> None:
    """A minimum with 4 hands on values below 4, as if the node were not there."""
    x = np.minimum(X, 1)
    right = x / (1 + np.exp(-x))
    found = explain(Region(graph_of(BRANCHED), "y", {"x": x}, right, (), {}, ("x",), SHAPES))
    assert found is not None
    assert (found.rewrite.kind, found.rewrite.text) == ("extra", "Mul z should not be there")


@pytest.mark.parametrize(
    ("name", "scalars", "kind"),
    [
        ("add_.Scalar", (("other", 1e-6),), "constant"),
        ("add_.Tensor", (), "extra"),  # of something else, not of a number
        ("log.default", (), "extra"),
    ],
)
@pytest.mark.sampled(1)
def test_a_number_of_the_original_s_own_beats_leaving_its_operation_out(
    name: str, scalars: tuple[tuple[str, object], ...], kind: str
) -> None:
    own = (Operation(0, name, "", None, (0,), (1,), scalars),)
    right = np.log(SMALL + np.float32(1e-6))
    place = Region(graph_of(SHIFTED), "y", {"x": SMALL}, right, own, {}, ("x",), SHAPES)
    found = explain(place)
    assert found is not None
    assert found.rewrite.kind == kind


def test_no_number_is_fitted_to_a_single_value() -> None:
    one = X[:1, :1]
    few = Region(graph_of(SCALED), "y", {"x": one}, one * np.float32(0.7312), (), {}, ("x",), {})
    assert "k is 0.37 and should be 0.7312" not in {each.text for each in fractions(few)}


TURNED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[8, 8] x) => (float[8, 8] y) {
    z = Transpose <perm = [1, 0]> (x)
    y = Log (z)
}
"""


@pytest.mark.parametrize(
    ("kinds", "kind", "text"),
    [
        (("log",), "extra", "Transpose z should not be there"),
        (("transpose", "log"), "attribute", "perm is [1, 0] and should be [0, 1]"),
    ],
)
def test_a_number_by_which_a_node_does_nothing_means_that_it_should_not_be_there(
    kinds: tuple[str, ...], kind: str, text: str
) -> None:
    x = np.abs(np.random.default_rng(1).normal(size=(8, 8))).astype(np.float32) + 1
    shapes = dict.fromkeys("xzy", x.shape)
    place = Region(graph_of(TURNED), "y", {"x": x}, np.log(x), chain(*kinds), {}, ("x",), shapes)
    found = explain(place)
    assert found is not None
    assert (found.rewrite.kind, found.rewrite.text) == (kind, text)
