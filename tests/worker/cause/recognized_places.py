"""Places of a graph and of an original, for tests of what is recognized in them."""

from collections.abc import Callable, Iterator

import numpy as np
import onnx.parser
import onnx_ir

from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.recording.recorded_call import Operation
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite

RANDOM = np.random.default_rng(7)
X = RANDOM.normal(size=(2, 3, 5, 8)).astype(np.float32)
GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
g (float[B, H, S, D] x) => (float[B, H, S, D] y) <float fixed = {0}> { y = Identity (fixed) }
"""


def region(found: np.ndarray, expected: np.ndarray, **feeds: np.ndarray) -> Region:
    """Return a place at which the graph computes `found` from `feeds`."""
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(GRAPH)))
    graph = graph.with_nodes(graph.nodes, {"fixed": np.ascontiguousarray(found)})
    return Region(graph, "y", feeds, expected, (), {}, tuple(feeds), {"y": found.shape})


def only(candidates: Callable[[Region], Iterator[Rewrite]], place: Region) -> str:
    """Return what the only candidate says; it must remove the difference."""
    (rewrite,) = candidates(place)
    assert place.error(place.graph) > 1e-3
    assert place.error(rewrite.graph) <= 2e-5
    return rewrite.text


def operation(index: int, name: str, read: int, made: int, **scalars: object) -> Operation:
    """Return an operation of the original that computes one value from another."""
    return Operation(index, name, "", f"model.py:{index}", (read,), (made,), tuple(scalars.items()))


def node_region(
    text: str, given: np.ndarray, expected: np.ndarray, *operations: Operation
) -> Region:
    """Return a place at which one node computes `y` from `x`."""
    head = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[B, C, H, W] x) => (float[B, C, U, V] y)'
    )
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(f"{head} {text}")))
    found = graph.run(["y"], {"x": given})["y"]
    shapes = {"y": found.shape, "x": given.shape}
    return Region(graph, "y", {"x": given}, expected, operations, {}, ("x",), shapes)
