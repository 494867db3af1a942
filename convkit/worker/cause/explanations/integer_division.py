"""Divisions of whole numbers: ONNX rounds them towards zero, torch's `//` rounds them down."""

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper

from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite


def divisions(region: Region) -> Iterator[Rewrite]:
    """Round the quotients of whole numbers down; it matters where their signs differ."""
    graph = region.graph
    for index in reversed(region.nodes):
        node = graph.nodes[index]
        if node.op_type != "Div" or not all(_is_whole(region, name) for name in node.input):
            continue
        if (divisor := graph.constants.get(node.input[1])) is not None and not divisor.all():
            continue  # the kernel ends the process
        nodes = [*graph.nodes[:index], *_floored(node), *graph.nodes[index + 1 :]]
        text = "it rounds towards zero and should round down, as the original's division does"
        yield Rewrite("operator", node.output[0], text, graph.with_nodes(nodes))


def _floored(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Return the division of what is left without the remainder, which has the divisor's sign."""
    dividend, divisor = node.input
    remainder, rest = f"{node.output[0]}//remainder", f"{node.output[0]}//rest"
    return [
        helper.make_node("Mod", [dividend, divisor], [remainder]),
        helper.make_node("Sub", [dividend, remainder], [rest]),
        helper.make_node("Div", [rest, divisor], list(node.output), name=node.name),
    ]


def _is_whole(region: Region, name: str) -> bool:
    constant = region.graph.constants.get(name)
    known = region.dtypes.get(name) if constant is None else constant.dtype
    return known is not None and np.dtype(known).kind == "i"
