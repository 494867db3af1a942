"""Another checkpoint's weights: paired with the original's by their order of use, because neither
names nor values relate them.
"""

import math
from collections.abc import Collection, Iterator, Sequence

from convkit.worker.cause.graphs.runnable_graph import Graph
from convkit.worker.cause.matching.weight_derivation import how_different
from convkit.worker.cause.recording.recorded_call import Recording
from convkit.worker.cause.search_types.search_results import Cause
from convkit.worker.cause.weights.fused_weights import Derived, derived_tensors
from convkit.worker.cause.weights.traced_weights import VAGUE, WeightDifference, WeightReport
from convkit.worker.cause.weights.weight_layouts import State, layouts_of

# Fewer weights than these, or a smaller share of all, are single faults.
_FEWEST, _MOST = 3, 0.5
# How the names of a recurrent layer's weights begin, whose gates and directions ONNX joins.
_RECURRENT = ("weight_ih_l", "weight_hh_l", "bias_ih_l")


def is_another_checkpoint(report: WeightReport, differences: tuple[WeightDifference, ...]) -> bool:
    """Say whether so many weights differ, in no way that has a simple description."""
    total = len(report.matches) + len(report.differences) + len(report.unknown)
    vague = [each for each in differences if each.likeness.kind in VAGUE]
    return len(vague) >= max(_FEWEST, math.ceil(_MOST * total))


def checkpoint_cause(
    differences: tuple[WeightDifference, ...], before: float, after: float
) -> Cause:
    """Return all differing weights as one cause."""
    kinds = {each.likeness.kind for each in differences}
    vague = sum(each.likeness.kind in VAGUE for each in differences) > len(differences) / 2
    names = ", ".join(each.original for each in differences[:3])
    more = ", ..." if len(differences) > 3 else ""
    how = (
        "the file was made from a different checkpoint"
        if vague
        else differences[0].likeness.text
        if len(kinds) == 1
        else "their values are different"
    )
    return Cause(
        "checkpoint",
        f"{len(differences)} weights are not the original's ({names}{more}): {how}",
        tensor=differences[0].weight,
        module=differences[0].original.rpartition(".")[0],
        before=before,
        after=after,
    )


def paired_by_use(
    recording: Recording, graph: Graph, state: State, report: WeightReport
) -> Iterator[dict[str, WeightDifference]]:
    """Yield differences of the weights that are not clearly one of the original's, by name.

    Both sides are ordered by first use, and paired if as many of one size are left. Tried are
    weights as exporters derive them and as they are, square matrices transposed and not.
    """
    uses = _uses(recording)
    # Short weights resemble others by chance.
    vague = [each.weight for each in report.differences if each.likeness.kind in VAGUE]
    held = {source for each in report.matches for source in each.sources}
    held |= {s for e in report.differences if e.weight not in vague for s in e.sources}
    free = {name: state[name] for name in uses if name in state and name not in held}
    order = sorted((*report.unknown, *vague), key=lambda name: _first_read(graph, name))
    shapes = {graph.constants[name].shape for name in order}
    for options in (_derived(free, shapes), _plain(free)):
        options.sort(key=lambda each: min(uses[s] for s in each.sources if s in uses))
        pairs = _pairs({name: graph.constants[name] for name in order}, options)
        for turned in (("MatMul", "Gemm"), ()) if pairs else ():
            made = ((name, _difference(graph, name, each, turned)) for name, each in pairs)
            yield {name: each for name, each in made if each is not None}


def _uses(recording: Recording) -> dict[str, int]:
    """Return the original's weights by name, numbered in the order in which they are read."""
    read = (recording.values[index] for each in recording.operations for index in each.inputs)
    names = dict.fromkeys(value.name for value in read if value.kind == "weight")
    return {name: place for place, name in enumerate(names)}


def _first_read(graph: Graph, name: str) -> tuple[int, int]:
    """Return the first node that reads a weight, and as which of its inputs."""
    reader = min(graph.readers.get(name, [0]))
    inputs = list(graph.nodes[reader].input)
    return reader, inputs.index(name) if name in inputs else 0


def _plain(free: State) -> list[Derived]:
    return [Derived(n, v.shape, lambda v=v: v, (n,)) for n, v in free.items()]  # type: ignore[misc]


def _derived(free: State, shapes: Collection[tuple[int, ...]]) -> list[Derived]:
    """Return weights with norms folded in and gates reordered, and the others as they are."""
    found: dict[tuple[str, ...], Derived] = {}
    used: dict[str, tuple[str, ...]] = {}
    for each in derived_tensors(free, shapes):
        rest = each.sources[1:]
        # A norm's nearest layer comes first; a layer of no norm is not joined with its neighbors.
        recurrent = each.sources[0].rpartition(".")[2].startswith(_RECURRENT)
        if " and " in each.original and not recurrent:
            continue
        if used.setdefault(each.sources[0], rest) == rest and each.sources not in found:
            found[each.sources] = each
    taken = {source for sources in found for source in sources}
    return [*found.values(), *(each for each in _plain(free) if each.original not in taken)]


def _pairs(wanted: State, options: Sequence[Derived]) -> list[tuple[str, Derived]]:
    """Pair weights and options of one size in order, if there are as many."""
    groups: dict[tuple[int, ...], tuple[list[str], list[Derived]]] = {}
    for name, values in wanted.items():
        groups.setdefault(_sizes(values.shape), ([], []))[0].append(name)
    for each in options:
        if _sizes(each.shape) in groups:
            groups[_sizes(each.shape)][1].append(each)
    return [
        pair
        for names, found in groups.values()
        if len(names) == len(found)
        for pair in zip(names, found, strict=True)
    ]


def _sizes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(sorted(size for size in shape if size != 1))


def _difference(
    graph: Graph, name: str, original: Derived, turned: Collection[str]
) -> WeightDifference | None:
    """Return how a weight differs; transposed if it can be for its reader."""
    values = graph.constants[name]
    moved = list(layouts_of(original.values, values.shape))
    if not moved:
        return None
    reader = graph.nodes[_first_read(graph, name)[0]].op_type
    corrected = moved[-1 if reader in turned else 0].astype(values.dtype)
    likeness = how_different(values, corrected)
    if likeness is None:
        return None
    return WeightDifference(name, original.original, original.sources, likeness, corrected)
