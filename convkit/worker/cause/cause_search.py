"""The whole search: weights first, which need no run, then place after place."""

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping

import numpy as np

from convkit.worker.cause.amplified_errors import amplified_error
from convkit.worker.cause.boundary.boundary_faults import (
    exchanged,
    outputs_error,
    with_change_at_edge,
)
from convkit.worker.cause.boundary.graph_edge import GraphEdge
from convkit.worker.cause.boundary.overridden_inputs import overridden_input
from convkit.worker.cause.explanations.explanation_search import explain
from convkit.worker.cause.explanations.explanation_table import WITHIN
from convkit.worker.cause.graphs.isolated_trials import spent
from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, Values, label
from convkit.worker.cause.graphs.taken_branches import with_taken_branches
from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.matching.weight_derivation import how_different
from convkit.worker.cause.place.axis_order_change import may_begin_earlier, places_turned
from convkit.worker.cause.place.first_divergence import Divergence
from convkit.worker.cause.place.kernel_faults import agrees_in_float64, blamed_on_kernels, release
from convkit.worker.cause.place.lost_nan import lost_nan
from convkit.worker.cause.place.parallel_faults import within
from convkit.worker.cause.place.repeated_causes import around, ranked
from convkit.worker.cause.place.superfluous_node import places_of_belonging
from convkit.worker.cause.quantized.quantized_causes import quantized_causes
from convkit.worker.cause.recording.recorded_call import Recording
from convkit.worker.cause.search_types.divergence_place import FLOOR, REMAINS, Parting
from convkit.worker.cause.search_types.diverging_region import region_of
from convkit.worker.cause.search_types.graph_edits import pinned
from convkit.worker.cause.search_types.search_results import Cause, Diagnosis
from convkit.worker.cause.weights.shared_constants import OWN, for_these_readers
from convkit.worker.cause.weights.weight_causes import PLACES, SAME, bias_causes, weight_causes
from convkit.worker.cause.weights.weight_layouts import held_by
from convkit.worker.cause.wording.cause_sentences import explained_cause, place_cause

# Places that are proven, of which the first that can be explained is taken.
_TRIED = 5
# Nodes. In a larger place, single values are looked at before the whole.
_WIDE = 12
# What quantized biases and norms folded before rounding may leave of the error.
_NEGLIGIBLE = 0.01


def localize(
    recording: Recording,
    graph: Graph,
    feeds: Values,
    state: Mapping[str, np.ndarray],
    *,
    seconds: float = 60.0,
) -> Diagnosis:
    """Explain why a graph's outputs differ from the recorded ones, for the recorded inputs.

    `feeds` are the inputs by the graph's names, `state` the original's weights and buffers by name.
    A cause is proven by the effect of its correction on the outputs; causes without proof are
    reported as such. The search ends after `seconds` (see `spent`), with what it has found.
    """
    deadline = spent() + seconds
    graph = with_taken_branches(graph, feeds)
    error = outputs_error(recording, graph, feeds)
    if error <= SAME:
        return Diagnosis(error, error, ())
    rounded, graph, remaining = quantized_causes(
        graph, state, feeds, error, lambda other: outputs_error(recording, other, feeds)
    )
    if rounded and remaining <= _NEGLIGIBLE * error:
        return Diagnosis(error, remaining, ranked(rounded, error))
    lost = lost_nan(
        graph, feeds, error, lambda other: outputs_error(recording, other, feeds), release()
    )
    if lost:
        return Diagnosis(error, lost[-1].after, lost)
    causes, graph, remaining = weight_causes(recording, graph, feeds, state, remaining)
    absent, graph, remaining = bias_causes(recording, graph, feeds, state, remaining)
    causes = [*rounded, *causes, *absent]
    edge, off, weights = GraphEdge(recording, graph, feeds), remaining, len(causes)
    if off > SAME and (at_boundary := exchanged(edge, off)):
        return Diagnosis(error, at_boundary.after, (at_boundary, *causes))
    if off > SAME and (stands_in := overridden_input(edge, off)):
        return Diagnosis(error, stands_in.after, (stands_in, *causes))
    placed, remaining = _place_after_place(recording, graph, feeds, state, deadline, remaining)
    causes += placed
    if off > SAME and (at_edge := with_change_at_edge(tuple(causes[weights:]), edge, off)):
        causes[weights:] = at_edge
        remaining = min(cause.after for cause in at_edge)
    ended = seconds if spent() >= deadline and not remaining <= SAME else None
    return Diagnosis(error, remaining, ranked(causes, error), ended)


def _place_after_place(
    recording: Recording,
    graph: Graph,
    feeds: Values,
    state: Mapping[str, np.ndarray],
    deadline: float,
    remaining: float,
) -> tuple[list[Cause], float]:
    """Correct one place after the other, until nothing differs or the time is over; return the
    causes and the outputs' error that remains of `remaining`.
    """
    off, causes, given = remaining, list[Cause](), graph
    unproven: tuple[int, Cause] | None = None
    for _ in range(PLACES):
        left = deadline - spent()
        if remaining <= SAME or left <= 0:
            break
        part, several = _first_wrong(recording, graph, feeds)
        search = Divergence(part, graph, feeds, seconds=left / 2)
        found = _first_explained(part, graph, search, state, left / 2, several=several)
        del search  # with all values of the graph
        if found is None:
            break
        cause, corrected, place = found
        if place is not None:
            unproven = unproven or (len(causes), place)
        named = next(iter(part.outputs)) if several else None
        cause = dataclasses.replace(cause, output=named)
        if causes and (other := _exchanged_operator(given, causes[-1], cause)) is not None:
            causes[-1] = other
        else:
            causes.append(cause)
        if corrected is None:
            remaining = min(cause.after, remaining) if not math.isnan(cause.after) else remaining
            break
        graph = corrected
        remaining = outputs_error(recording, graph, feeds)
    if unproven is not None and not remaining <= max(SAME, REMAINS * off):
        # What was corrected within a place was not all that is wrong there.
        count, place = unproven
        causes[count:], remaining = around(place, causes[count:]), place.after
    return causes, remaining


def _exchanged_operator(graph: Graph, extra: Cause, missing: Cause) -> Cause | None:
    """Return one cause for a node that is superfluous and what one reader after the other then
    lacks: it is another operator than the original's.

    Where an activation hardly changes the values, its own input resembles its result.
    """
    if missing.added is None or missing.added[0] != extra.tensor or extra.boundary is not None:
        return None
    if extra.kind != "extra" and extra.added != missing.added:
        return None
    if extra.tensor not in graph.producers:
        return None
    node = graph.nodes[graph.producers[extra.tensor]]
    return dataclasses.replace(
        missing,
        kind="operator",
        text=f"{node.op_type} {label(node)}: it should be {missing.added[1]}",
        node=extra.node,
        tensor=extra.tensor,
        operation=None,
        error=extra.error,
        before=extra.before,
        values=extra.values,
        growth=extra.growth,
        boundary=None,
    )


def _first_wrong(recording: Recording, graph: Graph, feeds: Values) -> tuple[Recording, bool]:
    """Return the recording with the first of several wrong outputs alone, the one that depends on
    the fewest nodes, and whether there are several: a fault above one may not be above another.
    """
    try:
        found = graph.run(list(recording.outputs), feeds)
    except PieceFailedError:
        return recording, False
    wrong = [
        name
        for name in recording.outputs
        if name in found and not relative_error(found[name], recording.output(name)) <= SAME
    ]
    if len(wrong) < 2:
        return recording, False
    first = min(wrong, key=lambda name: len(graph.closure([name], feeds)))
    return dataclasses.replace(recording, outputs={first: recording.outputs[first]}), True


def _first_explained(
    recording: Recording,
    graph: Graph,
    divergence: Divergence,
    state: Mapping[str, np.ndarray],
    seconds: float,
    *,
    several: bool,
) -> tuple[Cause, Graph | None, Cause | None] | None:
    """Return the first place with a known fault, otherwise the first place, with the graph to go on
    with if there is one.

    A fault within a place, one of several, comes with the place: it is not proven by itself. A
    place of many nodes is searched for such faults first. If `several` outputs are wrong, the graph
    to go on with has the original's value where nothing is explained.
    """
    first: tuple[Cause, Graph | None, Cause | None] | None = None
    unexplained: Parting | None = None
    deadline = spent() + seconds

    def share() -> float:
        return max(0.0, min(seconds / _TRIED, deadline - spent()))

    for parting in itertools.islice(divergence.partings(), _TRIED):
        if first is not None and spent() > deadline:
            break
        wide = len(graph.closure([parting.name], parting.known)) > _WIDE
        if wide and not parting.restored:
            inner = _one_of_several(recording, graph, divergence, parting, share())
            if inner is not None:
                return inner
        cause, corrected, known = _at_place(recording, graph, divergence, parting, share())
        if known and corrected is not None and cause.kind == "extra":
            belonging = _belonging(recording, graph, divergence, parting, cause, share())
            cause, corrected = belonging or (cause, corrected)
        if known and corrected is not None and may_begin_earlier(recording, graph, cause):
            earlier = _earlier(recording, graph, divergence, parting, cause, share())
            cause, corrected = earlier or (cause, corrected)
        if known and corrected is not None:
            return _with_likeness(cause, graph, corrected, state), corrected, None
        if cause.kind == "place" and not parting.restored and not wide:
            unexplained = unexplained or parting
        if several and corrected is None and cause.kind == "place":
            expected = recording.values[parting.value].array
            values = parting.layout.apply(expected).astype(divergence.found[parting.name].dtype)
            corrected = pinned(graph, parting.name, values)
        first = first or (cause, corrected, None)
    if first is None or unexplained is None:
        return first
    left = deadline - spent()
    return _one_of_several(recording, graph, divergence, unexplained, left) or first


def _belonging(
    recording: Recording,
    graph: Graph,
    divergence: Divergence,
    parting: Parting,
    extra: Cause,
    seconds: float,
) -> tuple[Cause, Graph] | None:
    """Return another explanation of what dropping a node would repair, if the node belongs there
    and the explanation is as good.
    """
    if extra.tensor not in graph.producers or extra.boundary is not None:
        return None
    places = places_of_belonging(recording, graph, divergence, parting, extra.tensor)
    return _as_good(recording, graph, divergence, places, extra, seconds)


def _earlier(
    recording: Recording,
    graph: Graph,
    divergence: Divergence,
    parting: Parting,
    order: Cause,
    seconds: float,
) -> tuple[Cause, Graph] | None:
    """Return an explanation of a wrong order of axes where that order begins, if it is as good."""
    places = places_turned(recording, graph, divergence, parting)
    return _as_good(recording, graph, divergence, places, order, seconds)


def _as_good(
    recording: Recording,
    graph: Graph,
    divergence: Divergence,
    places: Iterator[Parting],
    than: Cause,
    seconds: float,
) -> tuple[Cause, Graph] | None:
    """Return the first explanation at one of the places that leaves no more error than another."""
    deadline = spent() + seconds
    for place in places:
        if (left := deadline - spent()) <= 0:
            break
        cause, corrected, known = _at_place(recording, graph, divergence, place, left)
        if known and corrected is not None and cause.after <= max(than.after, FLOOR):
            return cause, corrected
    return None


def _one_of_several(
    recording: Recording, graph: Graph, divergence: Divergence, place: Parting, seconds: float
) -> tuple[Cause, Graph, Cause] | None:
    """Return a fault within a place, the graph with it corrected, and the place; None if none is
    found.
    """
    deadline = spent() + seconds
    for parting in within(recording, graph, divergence, place):
        if (left := deadline - spent()) <= 0:
            break
        originals = divergence.originals(parting.known)
        region = region_of(recording, graph, parting, originals, divergence.found)
        explanation = explain(region, left / 2, WITHIN)
        if explanation is not None:
            inner = place_cause(recording, graph, divergence, parting, region)
            corrected = explanation.rewrite.graph
            after = outputs_error(recording, corrected, _inputs(graph, divergence))
            explained = explained_cause(recording, inner, graph, region, explanation, after)
            originals = divergence.originals(place.known)
            whole = region_of(recording, graph, place, originals, divergence.found)
            return explained, corrected, place_cause(recording, graph, divergence, place, whole)
    return None


def _at_place(
    recording: Recording, graph: Graph, divergence: Divergence, parting: Parting, seconds: float
) -> tuple[Cause, Graph | None, bool]:
    """Return the cause at a place, the graph to go on with, and whether it is known what is wrong.

    A graph with several faults goes on with the original's value where one is not explained.
    """
    originals = divergence.originals(parting.known)
    region = region_of(recording, graph, parting, originals, divergence.found)
    explanation = explain(region, seconds)
    cause = place_cause(recording, graph, divergence, parting, region)
    on = pinned(graph, parting.name, region.expected) if parting.restored else None
    if explanation is None:
        amplified = amplified_error(recording, graph, divergence, parting, region)
        return amplified or blamed_on_kernels(cause, region), on, False
    feeds = _inputs(graph, divergence)
    after = outputs_error(recording, explanation.rewrite.graph, feeds)
    alone = for_these_readers(graph, region, explanation.rewrite)
    if alone is not None and not outputs_error(recording, alone.graph, feeds) >= after:
        explanation = dataclasses.replace(explanation, rewrite=alone)
        after = outputs_error(recording, alone.graph, feeds)
    rewrite = explanation.rewrite
    if not parting.restored and not after < max(parting.before / 2, SAME):
        return cause, on, False  # it explains the place and not the outputs: chance
    explained = explained_cause(recording, cause, graph, region, explanation, after)
    if explained.kind in ("operator", "extra") and agrees_in_float64(region):
        # Far out one function resembles another, and a wrong one does not agree in float64.
        return blamed_on_kernels(cause, region), on, False
    return explained, rewrite.graph, True


def _with_likeness(
    cause: Cause, graph: Graph, corrected: Graph, state: Mapping[str, np.ndarray]
) -> Cause:
    """Add how a weight differs that a search found to be wrong, or whose values it holds."""
    if cause.kind != "weight" or cause.tensor is None or cause.tensor not in graph.constants:
        return cause
    values = graph.constants[cause.tensor]
    other = held_by(values, state)
    # A weight with its own axes permuted holds its own values, and is not swapped.
    if other is not None and not cause.text.endswith(f"the original's {other}"):
        text = f"{cause.text}; it holds the values of {other}"
        return dataclasses.replace(cause, kind="exchanged", text=text)
    right = corrected.constants.get(f"{cause.tensor}{OWN}", corrected.constants[cause.tensor])
    likeness = how_different(values, right)
    text = cause.text if likeness is None else f"{cause.text}: {likeness.text}"
    return dataclasses.replace(cause, text=text)


def _inputs(graph: Graph, divergence: Divergence) -> dict[str, np.ndarray]:
    return {name: divergence.found[name] for name in graph.inputs if name in divergence.found}
