"""Explanations are tried on values of every rank, empty ones and of every kind of element."""

import dataclasses
import itertools
import warnings
from collections.abc import Iterator

import numpy as np
import onnx_ir
import pytest
from onnx import TensorProto, helper

from convkit.worker.cause.explanations import explanation_search
from convkit.worker.cause.explanations.explanation_search import (
    CANDIDATES,
    SkippedKindWarning,
    explain,
)
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite

SHAPES = [(), (1,), (7,), (0,), (6, 4), (1, 8), (2, 3, 4), (2, 0, 3), (2, 3, 4, 5), (2, 1, 2, 3, 2)]
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64}
CHAINS = {
    "float32": ("Add", "Mul", "Sub", "Tanh", "Softmax", "Div", "Abs"),
    "int64": ("Add", "Mul", "Sub", "Abs", "Neg"),
}


def region(shape: tuple[int, ...], dtype: str) -> Region:
    """Return a chain of operators whose result is off by more than its last one explains."""
    random = np.random.default_rng(len(shape))
    x = (random.normal(0, 3, shape) + 1).astype(dtype)
    nodes, last = [], "x"
    for place, kind in enumerate(CHAINS[dtype]):
        if kind == "Softmax" and not shape:
            continue
        inputs = [last, "c"] if kind in ("Add", "Mul", "Sub", "Div") else [last]
        nodes.append(helper.make_node(kind, inputs, [last := f"v{place}"], f"/chain/{kind}"))
    values = [helper.make_tensor_value_info(name, TYPES[dtype], shape) for name in ("x", last)]
    constant = helper.make_tensor("c", TYPES[dtype], (), [3])
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], [constant])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    made = make_graph(onnx_ir.from_proto(model))
    weights = {"gain": np.full(shape[-1:] or (1,), 2, np.float32)}
    shapes = {name: shape for node in nodes for name in (*node.output, "x")}
    expected = (x * x + np.sin(x)).astype(dtype)
    return Region(made, last, {"x": x}, expected, (), weights, (), shapes)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_no_kind_fails(shape: tuple[int, ...], dtype: str) -> None:
    place = region(shape, dtype)
    made = {
        kind: list(itertools.islice(candidates(place), 100))
        for kind, candidates in CANDIDATES.items()
    }
    assert any(made.values()) or dtype != "float32"


def test_a_kind_that_fails_is_reported_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(place: Region) -> Iterator[Rewrite]:
        raise IndexError(f"no axis of {place.target}")

    monkeypatch.setitem(CANDIDATES, "weights", failing)  # the first kind, tried in another process
    place = region((6, 4), "float32")
    negated = -place.graph.run([place.target], place.feeds)[place.target]
    place = dataclasses.replace(place, expected=negated)
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        found = explain(place)
    assert found is not None
    assert "sign" in found.rewrite.text or "Neg" in found.rewrite.text, found.rewrite.text
    with pytest.warns(
        SkippedKindWarning, match="'weights' are left out: IndexError: no axis of v6"
    ):
        assert list(explanation_search._offered("weights", failing, place)) == []
