"""Faults inside the bodies of Loop and Scan: changed there, computed with the whole operator."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import numpy_helper

from convkit.worker.cause.explanations import rewritten_nodes, wrong_numbers
from convkit.worker.cause.graphs.runnable_graph import (
    Graph,
    PieceFailedError,
    constants_apart,
    label,
)
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite, copied, replaced

_WITH_BODIES = ("Loop", "Scan")
# Rounds. A changed condition may never end a loop that only its condition ends.
_LONGEST = 10_000
# What is tried within a body. No value inside is known by itself, so nothing that compares values
# is among them.
_KINDS = (
    *(rewritten_nodes.attributes, rewritten_nodes.operators, rewritten_nodes.operand_order),
    *(wrong_numbers.whole_numbers, wrong_numbers.fractions, rewritten_nodes.wiring),
)


def bodies(region: Region) -> Iterator[Rewrite]:
    """Change a node or a number in the body of a loop."""
    for index in region.nodes:
        node = region.graph.nodes[index]
        if node.op_type not in _WITH_BODIES or node.domain:
            continue
        body = next((each.g for each in node.attribute if each.name == "body"), None)
        if body is None or not _ends(region, node, body):
            continue
        inner = _inner(region, index, body)
        for candidates in _KINDS:
            for rewrite in candidates(inner):
                place = inner.graph.producers.get(rewrite.node)
                if place is None:
                    continue  # a node without a first output
                concerned = inner.graph.nodes[place]
                text = f"in its body, {concerned.op_type} {label(concerned)}: {rewrite.text}"
                graph = inner.whole(rewrite.graph)
                yield Rewrite(rewrite.kind, node.output[0], text, graph)


def _ends(region: Region, node: onnx.NodeProto, body: onnx.GraphProto) -> bool:
    """Say whether a loop surely ends: its rounds are counted, and few."""
    if any(inner.op_type == "Loop" for inner in body.node):
        return False
    if node.op_type == "Scan":
        return True
    if not node.input[0]:
        return False
    try:
        rounds = region.graph.run([node.input[0]], region.feeds)[node.input[0]]
    except PieceFailedError:
        return False
    return int(rounds.item()) <= _LONGEST


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Body(Region):
    """A body as a region: its own nodes, judged by what the whole graph computes with them."""

    outer: Region
    index: int

    @property
    def nodes(self) -> list[int]:
        return list(range(len(self.graph.nodes)))

    def error(self, graph: Graph) -> float:
        return self.outer.error(self.whole(graph))

    def computed(self, graph: Graph) -> np.ndarray | None:
        return self.outer.computed(self.whole(graph))

    def whole(self, graph: Graph) -> Graph:
        """Return the whole graph with another body."""
        node = copied(self.outer.graph.nodes[self.index])
        body = next(each.g for each in node.attribute if each.name == "body")
        del body.node[:], body.initializer[:]
        body.node.extend(graph.nodes)
        body.initializer.extend(
            numpy_helper.from_array(np.asarray(values), name)
            for name, values in graph.constants.items()
        )
        body.initializer.extend(graph.exotic.values())
        return replaced(self.outer.graph, self.index, node)


def _inner(region: Region, index: int, body: onnx.GraphProto) -> _Body:
    """Return a node's body as a region: no value in it is known, and none has a shape."""
    return _Body(
        graph=_as_graph(region.graph, body),
        target=region.target,
        feeds=region.feeds,
        expected=region.expected,
        operations=region.operations,
        weights={},
        read=(),
        shapes={},
        outer=region,
        index=index,
    )


def _as_graph(graph: Graph, body: onnx.GraphProto) -> Graph:
    nodes, constants, exotic = constants_apart(body.node, body.initializer)
    return Graph(
        tuple(nodes),
        tuple(value.name for value in body.input),
        tuple(value.name for value in body.output),
        constants,
        exotic,
        graph.ir_version,
        graph.opsets,
    )
