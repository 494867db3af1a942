"""Values in the wrong order of axes are named at the node that orders them."""

import numpy as np
import onnx.parser
import onnx_ir

from convkit.worker.cause.explanations.reordered_elements import reordered
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.search_types.diverging_region import Region

ONE, OTHER = np.random.default_rng(7).normal(size=(2, 2, 3, 4)).astype(np.float32)
GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
g (float[2,3,4] a, float[2,3,4] b) => (float[n] y) {
  s = Constant <value_ints = [48]> ()
  c = Concat <axis = 1> (a, b)
  %s
  y = Reshape (c, s)
}
"""


def joined(tail: str = "") -> Region:
    """Return a place that reads two tensors joined along axis 1, and needs them along axis 2."""
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(GRAPH % tail)))
    right, given = (np.concatenate([ONE, OTHER], axis=axis) for axis in (2, 1))
    expected = right.reshape(-1)
    feeds, own, shapes = {"c": given}, {"c": right}, {"c": given.shape}
    return Region(graph, "y", feeds, expected, (), {}, (), shapes, own=own)


def test_values_joined_along_another_axis_are_the_join_s_fault() -> None:
    place = joined()
    (rewrite,) = [e for e in reordered(place) if not place.error(e.graph) > 0]
    assert (rewrite.node, rewrite.kind) == ("c", "order")
    assert rewrite.text.startswith("its output has the right values in the wrong order")


def test_a_value_with_several_readers_is_the_reader_s_fault() -> None:
    place = joined("z = Neg (c)")
    (rewrite,) = [e for e in reordered(place) if not place.error(e.graph) > 0]
    assert rewrite.node == "y"
    assert rewrite.text.startswith("its input c has")


def test_exchanged_axes_are_named() -> None:
    square = np.random.default_rng(7).normal(size=(2, 3, 3)).astype(np.float32)
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[2,3,3] a) => (float[2,3,3] y) { y = Neg (a) }
    """
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(text)))
    given = np.ascontiguousarray(square.swapaxes(1, 2))
    place = Region(
        graph, "y", {"a": given}, -square, (), {}, (), {"a": given.shape}, own={"a": square}
    )
    (rewrite,) = [each for each in reordered(place) if not place.error(each.graph) > 0]
    assert rewrite.text.endswith("in the wrong order: axes 1 and 2 are swapped")
