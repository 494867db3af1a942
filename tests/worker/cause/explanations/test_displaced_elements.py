"""Elements at the wrong places, and results of a node that are fed alone."""

import numpy as np
import onnx.parser
import onnx_ir
import pytest

from convkit.worker.cause.explanations.displaced_elements import moved
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.search_types.diverging_region import Region

X = np.random.default_rng(7).normal(size=(2, 3, 5, 8)).astype(np.float32)
GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
g (float[B, H, S, D] x) => (float[B, H, S, D] y)
  <bool always = {1}, float fixed = {0}> { y = Where (always, fixed, x) }
"""


def region(found: np.ndarray, expected: np.ndarray) -> Region:
    """Return a place at which a node reads X, and the graph computes `found`."""
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(GRAPH)))
    graph = graph.with_nodes(graph.nodes, {"fixed": np.ascontiguousarray(found)})
    return Region(graph, "y", {"x": X}, expected, (), {}, ("x",), {"y": found.shape})


@pytest.mark.parametrize(
    ("found", "expected", "text"),
    [
        (np.roll(X, 2, 3), X[..., ::-1], "shifted by 2 along axis 3 and should have it reversed"),
        (X, X[:, [2, 0, 1]], "has x as it is and should have it shifted by 1 along axis 1"),
        (X[:, :, [0, 2, 1, 3, 4]], X, "in the order [0, 2, 1, 3, 4] along axis 2 and should have"),
    ],
)
def test_elements_at_the_wrong_places_are_named(
    found: np.ndarray, expected: np.ndarray, text: str
) -> None:
    place = region(found, np.ascontiguousarray(expected))
    (of_x, of_result) = moved(place)
    assert text in of_x.text
    assert "its elements are in the wrong order" in of_result.text
    assert place.error(of_x.graph) == 0


def test_elements_that_appear_twice_are_in_no_order() -> None:
    place = region(X, X[:, :, [0, 0, 2, 3, 4]])
    assert not list(moved(place))
    assert not list(moved(region(X, np.tanh(X))))


def test_one_of_several_results_can_be_fed_alone() -> None:
    graph = make_graph(
        onnx_ir.from_proto(
            onnx.parser.parse_model("""
            <ir_version: 8, opset_import: ["": 17]>
            g (float[5] x, int64[1] k) => (float[N] y)
              { v, i = TopK (x, k)  w = Gather (x, i)  y = Add (v, w) }
            """)
        )
    )
    feeds = {"x": np.arange(5, dtype=np.float32), "k": np.array([2])}
    np.testing.assert_array_equal(graph.run(["y"], feeds)["y"], [8, 6])
    fed = graph.run(["y"], {**feeds, "v": np.array([10, 20], np.float32)})
    np.testing.assert_array_equal(fed["y"], [14, 23])
