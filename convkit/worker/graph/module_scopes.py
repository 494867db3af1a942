"""Module paths for graphs whose exporter recorded none, so that a precision plan can refer to
parts.
"""

import re
from collections import Counter
from collections.abc import Iterator

import onnx_ir as ir

from convkit.worker.graph.graph_traversal import attribute_graphs
from convkit.worker.graph.node_modules import module_path
from convkit.worker.graph.node_origins import MODULE_KEY

_SEPARATORS = re.compile(r"[/.]+")
# Characters with a meaning in patterns over module paths, or not allowed there.
_UNFIT = re.compile(r"[^\w:-]+")
# Scopes are only meaningful if they group nodes: with fewer nodes per scope than this, a scope is
# just a name.
_LEAST_SHARED = 2


def name_scopes(model: ir.Model) -> None:
    """Give each node a module path, if no node of the graph has one.

    The path is the prefix of the node's name (`block1/conv/Conv2D`: `block1.conv`) if prefixes
    group the nodes; otherwise the operator and its number among its kind (`Conv.3`), in graph
    order.
    """
    nodes = list(_nodes(model.graph))
    if not nodes or any(module_path(node) for node in nodes):
        return
    prefixes = [_prefix(node.name or "") for node in nodes]
    distinct = set(prefixes) - {""}
    if len(distinct) > 1 and sum(map(bool, prefixes)) >= _LEAST_SHARED * len(distinct):
        for node, prefix in zip(nodes, prefixes, strict=True):
            if prefix:
                node.metadata_props[MODULE_KEY] = prefix
        return
    numbers: Counter[str] = Counter()
    for node in nodes:
        node.metadata_props[MODULE_KEY] = f"{node.op_type}.{numbers[node.op_type]}"
        numbers[node.op_type] += 1


def _nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    for node in graph:
        if node.op_type != "Constant":
            yield node
        for attribute in node.attributes.values():
            for body in attribute_graphs(attribute):
                yield from _nodes(body)


def _prefix(name: str) -> str:
    """Return a node's name without its last part, as a module path."""
    if "/" not in name:
        return ""
    parts = [_UNFIT.sub("_", part) for part in _SEPARATORS.split(name)]
    return ".".join(part for part in parts[:-1] if part)
