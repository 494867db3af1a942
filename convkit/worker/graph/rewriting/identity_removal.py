"""Removes Identity nodes."""

import onnx_ir
from onnx_ir.passes.common import IdentityEliminationPass

# The domain of nodes that stay, while the others are removed.
_KEPT = "convkit.kept"


def remove_identities(model: onnx_ir.Model) -> None:
    """Remove every Identity node of a model and its bodies that names and outputs do not need.

    onnx_ir's pass fails on an Identity by which a body returns a value of the graph around it, and
    renames an output that a second output copies: those stay.
    """
    kept = _needed(model)
    for node in kept:
        node.domain = _KEPT
    IdentityEliminationPass()(model)
    for node in kept:
        node.domain = ""


def _needed(model: onnx_ir.Model) -> list[onnx_ir.Node]:
    needed = []
    returned: set[onnx_ir.Value] = set()
    for node in onnx_ir.traversal.RecursiveGraphIterator(model.graph):
        if not _is_identity(node) or not node.outputs[0].is_graph_output():
            continue
        source = _source(node)
        producer = source.producer()
        foreign = producer is None or producer.graph is not node.graph
        if foreign or source.is_graph_output() or source in returned:
            needed.append(node)
        returned.add(source)
    return needed


def _source(node: onnx_ir.Node) -> onnx_ir.Value:
    """Return the value that a chain of Identity nodes copies."""
    while True:
        value = node.inputs[0]
        assert value is not None  # an Identity has its input
        producer = value.producer()
        if producer is None or not _is_identity(producer):
            return value
        node = producer


def _is_identity(node: onnx_ir.Node) -> bool:
    return node.op_type == "Identity" and not node.domain and node.inputs[0] is not None
