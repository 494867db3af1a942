"""A graph and its errors as Model Explorer reads them."""

import dataclasses
import json

import pytest
from records import OUTPUT, verified_target

from convkit.host.report.model_explorer import (
    LAYERS,
    basis_text,
    explorer_graph,
    node_data,
    outstanding,
)
from convkit.protocol.messages import (
    LowPrecision,
    ModulePrecision,
    PrecisionResult,
    ViewedNode,
    ViewResult,
)

NODES = (
    ViewedNode(
        "first", "MatMul", ("x", "weight"), ("a",), "encoder.layer.0", "model.py:3", "float16",
        (2, 4), error=1e-3, largest=32.0, headroom=2047.0,
    ),
    ViewedNode("half", "Split", ("a",), ("b", "c"), "encoder", None, "float32", (2, 2), error=0.0),
    ViewedNode("sum", "Add", ("b", "c"), (OUTPUT,), "", None, "float16", (2, 2), lost=True),
)  # fmt: skip
VIEW = ViewResult(NODES, ("x",), (OUTPUT,), "built", simulated=True, basis="original")
KEPT = ModulePrecision("encoder", 0, 1, 0, 0, ("kept by a pattern",), None, 0.0, "b", "typical")
TARGET = dataclasses.replace(
    verified_target(), plan=PrecisionResult(LowPrecision("float16"), (KEPT,), (), ())
)


def graph() -> dict:
    """Return the graph as it is in the file."""
    content = json.loads(json.dumps(explorer_graph(VIEW, TARGET, "typical", "bert half")))
    assert content["label"] == "bert half"
    (found,) = content["graphs"]
    assert found["id"] == "bert half"
    return found


def attributes(node: dict) -> dict[str, str]:
    return {each["key"]: each["value"] for each in node["attrs"]}


def test_nodes_are_grouped_by_module_and_joined_by_their_tensors() -> None:
    nodes = {node["id"]: node for node in graph()["nodes"]}
    assert list(nodes) == ["input:x", "a", "b", OUTPUT, f"output:{OUTPUT}"]
    assert (nodes["a"]["label"], nodes["a"]["namespace"]) == ("MatMul", "encoder/layer/0")
    # The weight is not a node.
    assert [edge["sourceNodeId"] for edge in nodes["a"]["incomingEdges"]] == ["input:x"]
    edges = nodes[OUTPUT]["incomingEdges"]
    assert [(edge["sourceNodeId"], edge["sourceNodeOutputId"]) for edge in edges] == [
        ("b", "0"),
        ("b", "1"),
    ]
    assert [edge["sourceNodeId"] for edge in nodes[f"output:{OUTPUT}"]["incomingEdges"]] == [OUTPUT]


def test_a_node_says_what_is_known_about_it() -> None:
    nodes = {node["id"]: attributes(node) for node in graph()["nodes"]}
    first = nodes["a"]
    assert first["source"] == "model.py:3"
    assert first["relative error"] == "0.001"
    assert first["headroom in float16"] == "2050 times"
    assert "not finite" not in first
    assert nodes["b"]["why float32"] == "kept by a pattern"
    assert "not finite" in nodes[OUTPUT]
    assert "relative error" not in nodes[OUTPUT]


def test_an_output_shows_its_share_of_the_limit() -> None:
    node = next(each for each in graph()["nodes"] if each["id"] == f"output:{OUTPUT}")
    shares = [value for key, value in attributes(node).items() if key.startswith("verdict")]
    assert len(shares) == 2  # one per release of the runtime
    assert all("of the limit" in share and "max_abs" in share for share in shares)


def test_layers_name_the_graph_and_its_nodes() -> None:
    layers = json.loads(json.dumps(node_data(VIEW, "bert half")))
    assert tuple(layers) == LAYERS
    results = {name: layer["bert half"]["results"] for name, layer in layers.items()}
    known = {node["id"] for node in graph()["nodes"]}
    assert all(set(each) <= known for each in results.values())
    assert {node: each["value"] for node, each in results["error"].items()} == {"a": 0.001, "b": 0}
    assert results["precision"]["b"]["value"] == "float32"
    assert list(results["not-finite"]) == [OUTPUT]
    bounds = [each["value"] for each in layers["error"]["bert half"]["thresholds"]]
    assert bounds == sorted(bounds)


def test_a_layer_that_says_nothing_is_left_out() -> None:
    plain = dataclasses.replace(NODES[0], dtype="float32", headroom=None)
    assert list(node_data(dataclasses.replace(VIEW, nodes=(plain,)), "t")) == ["error"]


def test_what_stands_out_comes_with_its_place() -> None:
    assert outstanding(VIEW) == [
        "first NaN or infinity: Add sum",
        "largest relative error: 0.001 at MatMul first (encoder.layer.0, model.py:3)",
        "least headroom in float16: 2050 times at MatMul first (encoder.layer.0, model.py:3)",
    ]
    over = dataclasses.replace(NODES[0], headroom=0.5, error=0.0)
    assert outstanding(dataclasses.replace(VIEW, nodes=(over,))) == [
        "every node returns exactly what it should",
        (
            "least headroom in float16: none, it overflows at MatMul first"
            " (encoder.layer.0, model.py:3)"
        ),
    ]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "The built graph, simulated with every result rounded, compared with the exported"),
        ({"basis": "corrected", "corrected_at": ("a",)}, "with the original's values at a."),
        ({"basis": "matched", "shown": "exported"}, "where they could be matched."),
    ],
)
def test_the_basis_of_the_errors_is_said(changes: dict, text: str) -> None:
    assert text in basis_text(dataclasses.replace(VIEW, **changes))
