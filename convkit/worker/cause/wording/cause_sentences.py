"""Causes in words: what differs at a place, and what explains it."""

import dataclasses
from typing import Literal

import onnx

from convkit.worker.cause.explanations.explanation_search import Explanation
from convkit.worker.cause.graphs.runnable_graph import VALUELESS, Graph, label, module_of
from convkit.worker.cause.matching.relative_difference import worst_values
from convkit.worker.cause.place.first_divergence import Divergence
from convkit.worker.cause.recording.recorded_call import VIEWS, Recording
from convkit.worker.cause.search_types.divergence_place import Parting
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite
from convkit.worker.cause.search_types.search_results import Cause
from convkit.worker.cause.wording.original_counterpart import counterpart

# More of either are a part of the model, which the module names.
_SHOWN = 6
# Operators that only rearrange, as `VIEWS` do.
_RESHAPING = (
    "Reshape",
    "Squeeze",
    "Unsqueeze",
    "Flatten",
    "Expand",
    "Identity",
    "Cast",
    "Constant",
)


def place_cause(
    recording: Recording, graph: Graph, divergence: Divergence, parting: Parting, region: Region
) -> Cause:
    """Return the cause for a place of which no more is known than that it is wrong."""
    producer = recording.values[parting.value].producer
    operation = recording.operations[producer] if producer is not None else None
    node = graph.nodes[graph.producers[parting.name]]
    found = divergence.found.get(parting.name)
    proven = parting.is_proven or parting.restored > 0
    text = _text(region, node)
    return Cause(
        "place" if proven else "unproven",
        text,
        node=label(node),
        tensor=parting.name,
        module=(operation.module if operation is not None else "") or module_of(node),
        source=operation.source if operation is not None else None,
        operation=operation.kind if operation is not None else None,
        error=parting.local,
        before=parting.before,
        after=parting.after,
        values=None if found is None else worst_values(found, region.expected),
        growth=parting.growth,
        restored=parting.restored,
    )


def _text(region: Region, last: onnx.NodeProto) -> str:
    """Say which nodes do not compute what the original computes, and with which operations it
    does. `last` is the node that computes the place's value.
    """
    graph = region.graph
    nodes = [graph.nodes[index] for index in region.nodes]
    where = f"{last.op_type} {label(last)}"
    kinds = [each.kind.strip("_") for each in region.operations if each.kind not in VIEWS]
    own = [
        node.op_type
        for node in nodes
        if node.op_type not in VALUELESS and node.op_type not in _RESHAPING
    ]
    few = 0 < len(kinds) <= _SHOWN and 0 < len(own) <= _SHOWN
    if len(nodes) < 2:
        text = f"{where} does not compute what the original computes here"
    else:
        listed = f" ({', '.join(own)})" if few else ""
        text = (
            f"the {len(nodes)} nodes that end at {where}{listed} do not compute what the original"
            " computes"
        )
    return f"{text}: {', '.join(kinds)}" if few else text


def explained_cause(
    recording: Recording,
    place: Cause,
    graph: Graph,
    region: Region,
    explanation: Explanation,
    after: float,
) -> Cause:
    """Return a place's cause with its explanation, which leaves the outputs' error `after`."""
    rewrite = explanation.rewrite
    operation = counterpart(recording, region, rewrite)
    if operation is not None:
        place = dataclasses.replace(
            place, module=operation.module, source=operation.source, operation=operation.kind
        )
    node = graph.nodes[graph.producers.get(rewrite.node, region.nodes[-1])]
    read = set(node.input) & set(graph.inputs)
    boundary: Literal["input", "output"] | None = None
    if rewrite.kind in ("missing", "order", "extra"):
        # A single node may read the input and return the output: what it reads decides.
        of_input = _all_read(graph, read) and _is_of_input(rewrite)
        if of_input and rewrite.kind != "extra":
            boundary = "input"
        elif rewrite.node in graph.outputs and not rewrite.combines:
            boundary = "output"
        elif of_input:
            boundary = "input"
    weight = rewrite.node if rewrite.constant is None else rewrite.constant
    if boundary == "input":
        weight = min(read)
    return dataclasses.replace(
        place,
        kind=rewrite.kind,
        text=f"{node.op_type} {label(node)}: {rewrite.text}",
        node=label(node),
        tensor=weight,
        error=explanation.before,
        corrected=explanation.after,
        after=after,
        boundary=boundary,
        added=rewrite.added,
    )


def _is_of_input(rewrite: Rewrite) -> bool:
    """Say whether a rewrite changes what a node reads, not what it computes."""
    return rewrite.kind == "extra" or rewrite.text.startswith("its input")


def _all_read(graph: Graph, inputs: set[str]) -> bool:
    """Say whether at most one node reads the values of inputs: a change at that node is a
    change of the input.
    """

    def valued(name: str) -> list[int]:
        return [i for i in graph.readers[name] if graph.nodes[i].op_type not in VALUELESS]

    return bool(inputs) and all(len(valued(name)) <= 1 for name in inputs)
