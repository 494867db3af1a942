"""The node of an ONNX file whose result changes if denormal numbers are flushed to zero."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from convkit.protocol.float_limits import SMALLEST_NORMAL
from convkit.worker.cause.graphs.runnable_graph import (
    Graph,
    PieceFailedError,
    label,
    module_of,
    read_graph,
    source_of,
)
from convkit.worker.original.probing.denormal_place import DenormalPlace, changed
from convkit.worker.process.denormal_mode import flushed_denormals, keep_denormals

# A file with more nodes is not searched for the first that differs: each of its results is kept.
_MOST_NODES = 5000


def denormal_node(path: Path, feeds: Mapping[str, np.ndarray]) -> DenormalPlace | None:
    """Return the first node whose result changes without denormal numbers; None if none does, or if
    the file is too large or cannot be run node by node.
    """
    graph = read_graph(path)
    if len(graph.nodes) > _MOST_NODES:
        return None
    try:
        first = _first_change(graph, feeds)
        if first is None:
            return None
        smallest = np.float32(SMALLEST_NORMAL)
        raised = {
            name: np.where(small, np.copysign(smallest, values), values)
            for name, values in graph.constants.items()
            if values.dtype == np.float32 and (small := _is_denormal(values)).any()
        }
        mended = None
        if raised:
            mended = _first_change(graph.with_nodes(graph.nodes, raised), feeds) is None
    except PieceFailedError:
        return None
    node = graph.nodes[first]
    return DenormalPlace(node.op_type, module_of(node), source_of(node), mended, node=label(node))


def _first_change(graph: Graph, feeds: Mapping[str, np.ndarray]) -> int | None:
    """Return the index of the first node whose results differ; the graph computes in this thread
    only.
    """
    targets = [name for node in graph.nodes for name in node.output if name]
    keep_denormals()
    kept = graph.run(targets, feeds)
    with flushed_denormals():
        flushed = graph.run(targets, feeds)
    single = [name for name, values in kept.items() if values.dtype == np.float32]
    parted = {
        graph.producers[name]
        for name in single
        if name in flushed and changed(kept[name], flushed[name])
    }
    return min(parted, default=None)


def _is_denormal(values: np.ndarray) -> np.ndarray:
    found: np.ndarray = (values != 0) & (np.abs(values) < SMALLEST_NORMAL)
    return found
