"""Where the axes of a graph's values begin to be in another order than the original's.

Values are matched in any order of axes, because every converter may choose its own. Where that
order is itself the fault, all values after it still match, until one reads them in the original's.
"""

import math
from collections.abc import Iterator

import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph
from convkit.worker.cause.matching.axis_layouts import AxisLayout
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.matching.value_matching import ValueMatch
from convkit.worker.cause.place.first_divergence import Divergence
from convkit.worker.cause.recording.recorded_call import Operation, Recording
from convkit.worker.cause.search_types.divergence_place import Parting
from convkit.worker.cause.search_types.search_results import Cause

# How many of the first such values are tried.
_TRIED = 3
# A cause of these kinds is about the order of axes; an attribute may be.
_ORDERS = ("order", "attribute")


def may_begin_earlier(recording: Recording, graph: Graph, cause: Cause) -> bool:
    """Say whether a cause may be the end of a fault that begins further up.

    It may where a node's output is in the wrong order, whatever it reads, and where a Transpose
    would have to turn axes otherwise than the original does in that line.
    """
    if cause.kind not in _ORDERS or cause.boundary is not None or cause.tensor is None:
        return False
    index = graph.producers.get(cause.tensor)
    if index is None:
        return False
    if cause.kind == "order":
        return True
    node = graph.nodes[index]
    own = _perm(node)
    return node.op_type == "Transpose" and any(
        _axes(recording, each) == own
        for each in recording.operations
        if cause.source is not None and each.source == cause.source
    )


def places_turned(
    recording: Recording, graph: Graph, divergence: Divergence, parting: Parting
) -> Iterator[Parting]:
    """Yield the first values before a place whose axes are in another order than the original's,
    each as if it had to be in the original's.
    """
    turned = {name: match for name, match in parting.known.items() if _is_turned(recording, match)}
    straight = {name: match for name, match in parting.known.items() if name not in turned}
    first = sorted(
        (name for name in turned if name in graph.producers), key=lambda n: graph.producers[n]
    )
    for name in first[:_TRIED]:
        match = turned[name]
        array = recording.values[match.value].array
        layout = AxisLayout(tuple(range(array.ndim)), array.shape)
        wanted = layout.apply(array).astype(divergence.found[name].dtype)
        above = divergence.upstream(name, straight)
        error = relative_error(divergence.found[name], wanted)
        after = divergence.after({name: wanted})
        if math.isfinite(after):
            yield Parting(name, match.value, layout, above, error, parting.before, after)


def _is_turned(recording: Recording, match: ValueMatch) -> bool:
    shape = recording.values[match.value].array.shape
    moving = [axis for axis in match.layout.axes if shape[axis] != 1]
    return moving != sorted(moving)


def _perm(node: onnx.NodeProto) -> list[int]:
    return next((list(each.ints) for each in node.attribute if each.name == "perm"), [])


def _axes(recording: Recording, operation: Operation) -> list[int] | None:
    """Return the order of axes that an operation of the original makes; None if it makes none."""
    arguments = dict(operation.scalars)
    rank = recording.values[operation.outputs[0]].array.ndim if operation.outputs else 0
    if operation.kind == "permute" and isinstance(dims := arguments.get("dims"), tuple):
        return [int(axis) % rank for axis in dims]
    one, other = arguments.get("dim0"), arguments.get("dim1")
    if operation.kind == "transpose" and isinstance(one, int) and isinstance(other, int):
        axes = list(range(rank))
        axes[one % rank], axes[other % rank] = other % rank, one % rank
        return axes
    return None
