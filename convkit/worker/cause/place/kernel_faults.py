"""Whether the runtime's kernels are off at a place, and not the graph."""

import dataclasses

from convkit.worker.cause.graphs.float64_graph import run_in_float64
from convkit.worker.cause.graphs.runnable_graph import PieceFailedError, label
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.search_results import Cause

# Nodes. The evaluator is slow, and a larger place is a part of the model.
_MOST = 60
# What the graph in float64 may leave of the error: the original was computed in float32.
_REMAINS = 0.1


def blamed_on_kernels(cause: Cause, region: Region) -> Cause:
    """Return an unexplained place's cause, and say so if the graph is right there: in float64, by
    onnx's own evaluator, its nodes agree with the original.
    """
    if len(region.nodes) > _MOST:
        return cause
    now = region.error(region.graph)
    try:
        (exact,) = run_in_float64(region.graph, [region.target], region.feeds).values()
    except PieceFailedError:
        return cause
    if exact.shape != region.expected.shape:
        return cause
    if not relative_error(exact, region.expected) <= _REMAINS * now:
        return cause
    node = region.graph.nodes[region.graph.producers[region.target]]
    count, where = len(region.nodes), f"{node.op_type} {label(node)}"
    off = f"kernels are off in the {count} nodes that end at" if count > 1 else "kernel is off in"
    text = (
        f"onnxruntime's {off} {where}, and the graph is right: computed in float64, it agrees"
        " with the original"
    )
    return dataclasses.replace(cause, text=text, of_kernels=True)
