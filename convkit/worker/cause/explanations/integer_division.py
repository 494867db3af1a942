"""Divisions of whole numbers: ONNX rounds them towards zero, torch's `//` rounds them down."""

from collections.abc import Iterator

import numpy as np

from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite
from convkit.worker.graph.operators.node_builder import NodeBuilder


def divisions(region: Region) -> Iterator[Rewrite]:
    """Round the quotients of whole numbers down; it matters where their signs differ."""
    graph = region.graph
    for index in reversed(region.nodes):
        node = graph.nodes[index]
        if node.op_type != "Div" or not all(_is_whole(region, name) for name in node.input):
            continue
        if (divisor := graph.constants.get(node.input[1])) is not None and not divisor.all():
            continue  # the kernel ends the process
        floored = NodeBuilder(node.output[0])
        # What is left without the remainder, which has the divisor's sign.
        floored.compute("Div(Sub(x, Mod(x, y)), y)", x=node.input[0], y=node.input[1])
        floored.nodes[-1].name = node.name
        nodes = [*graph.nodes[:index], *floored.nodes, *graph.nodes[index + 1 :]]
        text = "it rounds towards zero and should round down, as the original's division does"
        yield Rewrite("operator", node.output[0], text, graph.with_nodes(nodes))


def _is_whole(region: Region, name: str) -> bool:
    constant = region.graph.constants.get(name)
    known = region.dtypes.get(name) if constant is None else constant.dtype
    return known is not None and np.dtype(known).kind == "i"
