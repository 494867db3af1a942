"""Boxes in another format are recognized from their numbers."""

import itertools

import numpy as np
import onnx.parser
import onnx_ir
import pytest

from convkit.worker.cause.explanations.box_formats import FORMATS, boxes
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite

GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
g (float[B, C, N] x) => (float[B, C, N] y) <float fixed = {0}> { y = Identity (fixed) }
"""
CENTERS = np.random.default_rng(3).uniform(1, 9, size=(2, 4, 6)).astype(np.float32)


def place(found: np.ndarray, expected: np.ndarray) -> Region:
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(GRAPH)))
    graph = graph.with_nodes(graph.nodes, {"fixed": np.ascontiguousarray(found)})
    return Region(graph, "y", {"x": found}, expected, (), {}, ("x",), {"y": found.shape})


def said(found: np.ndarray, expected: np.ndarray) -> list[Rewrite]:
    return list(boxes(place(found.astype(np.float32), expected.astype(np.float32))))


def corners(centers: np.ndarray) -> np.ndarray:
    half = centers[:, 2:] / 2
    return np.concatenate([centers[:, :2] - half, centers[:, :2] + half], axis=1)


def as_format(name: str, axis: int) -> np.ndarray:
    """Return the same boxes in a format, their numbers along an axis."""
    _, numbers = FORMATS[name]
    return np.stack(numbers(tuple(np.moveaxis(corners(CENTERS), 1, 0))), axis)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize(("own", "should"), [*itertools.permutations(FORMATS, 2)])
def test_both_formats_are_named(own: str, should: str, axis: int) -> None:
    found, expected = as_format(own, axis), as_format(should, axis)
    (rewrite,) = said(found, expected)
    assert own in rewrite.text
    assert rewrite.text.endswith(should)
    assert not place(found, expected).error(rewrite.graph) > 2e-5


def test_centers_are_as_models_decode_them() -> None:
    (rewrite,) = said(CENTERS, corners(CENTERS))
    assert rewrite.kind == "missing"
    assert "has boxes as centers and sizes" in rewrite.text
    assert not place(CENTERS, corners(CENTERS)).error(rewrite.graph) > 2e-5


def test_other_values_are_no_boxes() -> None:
    assert not said(CENTERS, corners(CENTERS) * 1.01)
    assert not said(CENTERS, CENTERS)
    assert not said(CENTERS[:, :3], CENTERS[:, :3] * 2)
    assert not said(CENTERS[:1, :, :2], corners(CENTERS)[:1, :, :2])  # too few
