"""Several faults in one place, in parallel branches: values within it that may be wrong."""

from collections.abc import Iterator

from convkit.worker.cause.graphs.runnable_graph import Graph
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.place.first_divergence import Divergence
from convkit.worker.cause.recording.recorded_call import VIEWS, Recording
from convkit.worker.cause.search_types.divergence_place import Parting

# How many of the graph's values are tried for each of the original's.
_TRIED = 2


def within(
    recording: Recording, graph: Graph, divergence: Divergence, place: Parting
) -> Iterator[Parting]:
    """Yield values within a place that may be wrong by themselves, in the original's order.

    If queries and keys are both wrong, correcting either makes no output right: only both
    corrections together can be proven.
    """
    stops = {match.value for match in place.known.values()}
    names = {n for i in graph.closure([place.name], place.known) for n in graph.nodes[i].output}
    for number in recording.closure([place.value], stops):
        operation = recording.operations[number]
        for value in operation.outputs if operation.kind not in VIEWS else ():
            expected = recording.values[value].array
            if value == place.value or value in recording.fixed:
                continue
            if expected.dtype.kind not in "fiub" or expected.size < 2:
                continue
            found = divergence.candidates(value, expected, place.known)
            usable = [each for each in found if each[0] in names and each[0] in divergence.found]
            for name, layout in usable[:_TRIED]:
                wanted = layout.apply(expected).astype(divergence.found[name].dtype)
                error = relative_error(divergence.found[name], wanted)
                upstream = divergence.upstream(name, place.known)
                after = divergence.after({name: wanted})
                yield Parting(
                    *(name, value, layout, upstream, error, place.before, after), restored=1
                )
