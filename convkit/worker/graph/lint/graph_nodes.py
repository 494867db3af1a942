"""Nodes of a model's graphs, and how findings name them."""

from collections.abc import Iterator

import onnx


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield a node's graphs: the branches of an If, the body of a Loop."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield every node, with those in subgraphs after the node that contains them."""
    for node in graph.node:
        yield node
        for inner in subgraphs(node):
            yield from all_nodes(inner)


def title(node: onnx.NodeProto) -> str:
    """Return an operator and a node's name: "Add /layer/Add"."""
    return f"{node.op_type} {name_of(node) or '(without a name)'}"


def name_of(node: onnx.NodeProto) -> str | None:
    """Return a node's name, or that of its first output."""
    return str(node.name) or next((str(name) for name in node.output if name), None)


def listed(names: list[str], shown: int = 4) -> str:
    """List names as text: the first few, and the number of others."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(map(repr, names[:shown])) + more
