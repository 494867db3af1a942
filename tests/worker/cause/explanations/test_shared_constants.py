"""A constant that several nodes read is corrected for the one that needs another value."""

import numpy as np
import onnx.parser
import onnx_ir

from convkit.worker.cause.explanations.stored_constants import weights
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.weights.shared_constants import for_these_readers

GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
g (float[2,3] x) => (float[2,3] y) <float[3] shared = {1, 2, 3}, float[3] own = {1, 2, 3}> {
  h = Mul (x, shared)
  y = %s
}
"""
X = np.ones((2, 3), np.float32)
OWN = np.array([4, 5, 6], np.float32)


def place(last: str) -> Region:
    """Return the place of y, whose second node should multiply by `OWN`."""
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(GRAPH % last)))
    h = X * np.array([1, 2, 3], np.float32)
    shapes = {"h": h.shape, "y": h.shape}
    return Region(graph, "y", {"h": h}, h * OWN, (), {"gain": OWN}, (), shapes)


def test_other_readers_keep_the_value() -> None:
    region = place("Mul (h, shared)")
    (rewrite,) = [e for e in weights(region) if not region.error(e.graph) > 0]
    expected = X * np.array([1, 2, 3], np.float32) * OWN
    assert not np.array_equal(rewrite.graph.run(["y"], {"x": X})["y"], expected)
    alone = for_these_readers(region.graph, region, rewrite)
    assert alone is not None
    np.testing.assert_array_equal(alone.graph.run(["y"], {"x": X})["y"], expected)
    assert alone.text.endswith("should hold the original's gain; h reads it as well, rightly")


def test_a_constant_of_one_node_is_not_shared() -> None:
    region = place("Mul (h, own)")
    (rewrite,) = [e for e in weights(region) if not region.error(e.graph) > 0]
    assert for_these_readers(region.graph, region, rewrite) is None
