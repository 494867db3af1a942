"""A node that seems superfluous, and that the original has as well: it is fed or used wrongly.

Twice a half is the whole: where a graph computes half of a value, and the original halves that
value next, the two match one step apart, and the graph's own halving looks like one too many.
"""

from collections.abc import Iterator, Mapping

from convkit.worker.cause.graphs.runnable_graph import Graph
from convkit.worker.cause.matching.axis_layouts import likeliest_layout
from convkit.worker.cause.matching.operation_kinds import kinds_of
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.matching.value_matching import ValueMatch
from convkit.worker.cause.place.first_divergence import Divergence
from convkit.worker.cause.recording.recorded_call import VIEWS, Recording
from convkit.worker.cause.search_types.divergence_place import Parting


def places_of_belonging(
    recording: Recording, graph: Graph, divergence: Divergence, parting: Parting, extra: str
) -> Iterator[Parting]:
    """Yield other places for a fault that dropping a node would repair, if the original computes
    the same operation there: the node's result, or what it reads. `extra` is the node's result.
    """
    node = graph.nodes[graph.producers[extra]]
    kinds = kinds_of(node)
    for name in node.input:
        match = parting.known.get(name)
        if match is None:
            continue
        near = {match.value, *_views_of(recording, match.value)}
        if extra == parting.name:
            near |= {parting.value, *_views_of(recording, parting.value)}
        for operation in recording.operations:
            if operation.kind.strip("_") not in kinds:
                continue
            if near.intersection(operation.inputs):
                yield from _place(recording, divergence, parting.known, extra, operation.outputs)
            if near.intersection(operation.outputs) and name in graph.producers:
                yield from _place(recording, divergence, parting.known, name, operation.inputs)


def _views_of(recording: Recording, value: int) -> list[int]:
    """Return the values that hold a value's elements, before and after it."""
    found = [value]
    for operation in recording.operations:
        if operation.kind in VIEWS and set(operation.inputs) & set(found):
            found += operation.outputs
    last = value
    while (producer := recording.values[last].producer) is not None:
        operation = recording.operations[producer]
        if operation.kind not in VIEWS or not operation.inputs:
            break
        last = operation.inputs[0]
        found.append(last)
    return found


def _place(
    recording: Recording,
    divergence: Divergence,
    known: Mapping[str, ValueMatch],
    name: str,
    values: tuple[int, ...],
) -> Iterator[Parting]:
    """Yield the place at which a value of the graph should be one of several of the original's."""
    found = divergence.found[name]
    for value in values:
        expected = recording.values[value].array
        if expected.size != found.size or expected.dtype.kind != found.dtype.kind:
            continue
        layout = likeliest_layout(expected, found)
        wanted = layout.apply(expected).astype(found.dtype)
        error = relative_error(found, wanted)
        after = divergence.after({name: wanted})
        upstream = divergence.upstream(name, known)
        parting = Parting(name, value, layout, upstream, error, divergence.error, after)
        if error > 0 and parting.is_proven:
            yield parting
