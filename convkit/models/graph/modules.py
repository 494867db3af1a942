"""Maps each node of a graph to the module of the original it came from."""

import ast
from collections.abc import Iterator

import onnx_ir as ir

from convkit.models.graph.provenance import MODULE_KEY
from convkit.models.graph.traversal import attribute_graphs

EXPORTER_SCOPES_KEY = "pkg.torch.onnx.name_scopes"


def module_path(node: ir.Node) -> str:
    """Return the path of a node's module; empty if the exporter recorded none, and for the root."""
    if (path := node.metadata_props.get(MODULE_KEY)) is not None:
        return path
    scopes = node.metadata_props.get(EXPORTER_SCOPES_KEY)
    if scopes is None:
        return ""
    try:
        names = ast.literal_eval(scopes)
    except (ValueError, SyntaxError):
        return ""
    # The last entry is the operation, the one before it is the innermost module.
    if not isinstance(names, list) or len(names) < 2:
        return ""
    path = str(names[-2])
    return "" if path.startswith("_empty_nn_module_stack") else path


def nodes_with_modules(model: ir.Model) -> Iterator[tuple[ir.Node, str]]:
    """Walk all nodes; a node in a subgraph without its own path belongs to its outer node's
    module.
    """

    # Subgraphs are walked right after their node, as `all_nodes` does.
    def walk(graph: ir.Graph, outer: str) -> Iterator[tuple[ir.Node, str]]:
        for node in graph:
            path = module_path(node) or outer
            yield node, path
            for attribute in node.attributes.values():
                for inner in attribute_graphs(attribute):
                    yield from walk(inner, path)

    return walk(model.graph, "")
