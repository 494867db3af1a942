"""A runtime that computes float64 in float32, faked: which does depends on its release."""

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir

from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.place.built_against_graph import compare_built

GRAPH = """
    <ir_version: 8, opset_import: ["" : 18]>
    g (double[3] a, double[3] b) => (float[3] y) { d = Sub(a, b) y = Cast<to = 1>(d) }
"""


class InSingle:
    """Subtracts in float32."""

    def tensors(self) -> list[str]:
        return ["d", "y"]

    def run(
        self, feeds: Mapping[str, np.ndarray], exposed: Sequence[str], put: Mapping[str, np.ndarray]
    ) -> dict[str, np.ndarray]:
        own = feeds["a"].astype(np.float32) - feeds["b"].astype(np.float32)
        difference = put.get("d", own.astype(np.float64))
        found = {"d": difference, "y": difference.astype(np.float32)}
        return {name: found[name] for name in ("y", *exposed)}


def test_what_is_left_of_two_large_numbers_tells_the_width() -> None:
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(GRAPH)))
    b = np.full(3, 604211.37)
    feeds = {
        "a": b + np.array([2**-6, -3.5 - 2**-6, 80.25 + 2**-6]),
        "b": b,
    }  # differences that float32 holds
    found = compare_built(graph, InSingle(), feeds)
    assert found is not None
    assert found.names == ("d",)
    assert found.width is not None
    assert "float32" in found.width
