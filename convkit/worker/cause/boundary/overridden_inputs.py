"""Inputs in whose place a graph reads values that are all equal: a mask baked in as ones."""

import numpy as np

from convkit.worker.cause.boundary.graph_edge import GraphEdge
from convkit.worker.cause.boundary.tensor_changes import explains
from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, label, reads
from convkit.worker.cause.recording.tensor_sketches import is_flat
from convkit.worker.cause.search_types.search_results import Cause

# Nodes that such values may be computed by: from the input's sizes, or from the input times zero.
_NODES = 8


def overridden_input(edge: GraphEdge, error: float) -> Cause | None:
    """Return the value that stands in for an input, if the outputs are right with the input in its
    place for all its readers. A single reader is a place, which the search knows more about.
    """
    given = {
        name: values
        for name in edge.graph.inputs
        if (values := edge.feeds.get(name)) is not None and values.ndim > 1 and not is_flat(values)
    }
    for name, values in _first_values(edge).items():
        several = len(edge.graph.readers.get(name, ())) > 1
        for other, expected in given.items() if several and is_flat(values) else ():
            if values.shape != expected.shape or values.dtype.kind not in "fiub":
                continue
            after = edge.error({**edge.feeds, name: expected.astype(values.dtype)})
            if explains(error, after):
                node = edge.graph.nodes[edge.graph.producers[name]]
                return Cause(
                    "wiring",
                    f"{node.op_type} {label(node)}: it is {values.flat[0]} everywhere, and what"
                    f" reads it should read {other!r}",
                    node=label(node),
                    tensor=name,
                    before=error,
                    after=after,
                    stands_for=other,
                )
    return None


def _first_values(edge: GraphEdge) -> dict[str, np.ndarray]:
    """Return what the graph computes in a few nodes."""
    counts = _nodes_before(edge.graph)
    names = [name for name in edge.graph.producers if counts.get(name, _NODES + 1) <= _NODES]
    try:
        return edge.graph.run(names, edge.feeds)
    except PieceFailedError:
        return {}


def _nodes_before(graph: Graph) -> dict[str, int]:
    """Return how many nodes at most compute each value; without those of more than a few."""
    counts: dict[str, int] = {}
    for node in graph.nodes:  # in topological order
        read = [name for name in reads(node) if name in graph.producers]
        if all(name in counts for name in read):
            count = 1 + sum(counts[name] for name in read)
            if count <= _NODES:
                counts |= dict.fromkeys(filter(None, node.output), count)
    return counts
