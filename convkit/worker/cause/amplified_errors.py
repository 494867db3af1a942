"""Kernels that are off by little beside a tensor's other values, and a later step makes it large: a
sigmoid that is 0 far below zero, before a logarithm.
"""

import dataclasses
import math

import numpy as np

from convkit.worker.cause.boundary.boundary_faults import outputs_error
from convkit.worker.cause.graphs.float64_graph import run_in_float64
from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, Values, label
from convkit.worker.cause.matching.relative_difference import CLOSE, relative_error
from convkit.worker.cause.place.equal_forms import working_form
from convkit.worker.cause.place.first_divergence import Divergence
from convkit.worker.cause.place.kernel_faults import release
from convkit.worker.cause.place.recomputed_values import NOISE, Nudged
from convkit.worker.cause.recording.recorded_call import Recording
from convkit.worker.cause.search_types.divergence_place import FLOOR, REMAINS, Parting
from convkit.worker.cause.search_types.diverging_region import Region, region_of
from convkit.worker.cause.search_types.search_results import Cause
from convkit.worker.cause.wording.cause_sentences import place_cause

# What an element is off by, in parts of itself, that is no rounding; and places passed through.
_OFF, _STEPS = 1e-3, 4


def amplified_error(
    recording: Recording, graph: Graph, divergence: Divergence, parting: Parting, region: Region
) -> Cause | None:
    """Return the kernel whose error a place makes large, if the place computes the original's value
    from the original's own: what it reads is off, in elements that are small beside others. None if
    nothing that it reads puts the outputs right, or no single kernel is off.
    """
    last = graph.nodes[graph.producers[parting.name]]
    for _ in range(_STEPS):
        if not region.error(graph) <= min(CLOSE, REMAINS * parting.local):
            return None
        earlier = _read_value(graph, divergence, parting, region)
        if earlier is None:
            return None
        parting = earlier
        originals = divergence.originals(parting.known)
        region = region_of(recording, graph, parting, originals, divergence.found)
        if _is_off_alone(region):
            cause = place_cause(recording, graph, divergence, parting, region)
            node = graph.nodes[graph.producers[parting.name]]
            text = (
                f"{release()}'s kernel is off in {node.op_type} {label(node)}, and the graph is"
                " right: computed in float64, it agrees with the original. The difference is"
                f" small there, and {last.op_type} {label(last)} makes it large"
            )
            instead = _right_form(recording, graph, divergence, parting)
            return dataclasses.replace(cause, text=text, of_kernels=True, instead=instead)
    return None


def _right_form(
    recording: Recording, graph: Graph, divergence: Divergence, parting: Parting
) -> str | None:
    """Return another form of the node of a place, with which the outputs are right."""
    feeds = {each: divergence.found[each] for each in graph.inputs}
    limit = max(REMAINS * min(parting.before, 1.0), 10 * FLOOR)
    form = working_form(
        graph,
        graph.nodes[graph.producers[parting.name]],
        divergence.found,
        lambda made: outputs_error(recording, made, feeds) <= limit,
    )
    return None if form is None else form.text


def _read_value(
    graph: Graph, divergence: Divergence, parting: Parting, region: Region
) -> Parting | None:
    """Return a value that a place reads, if the original's in its stead puts the outputs right."""
    for name, match in parting.known.items():
        found, wanted = divergence.found.get(name), region.feeds.get(name)
        if name not in graph.producers or found is None or wanted is None:
            continue
        if not region.reads(name) or not _parts_off(found, wanted).max(initial=0) > _OFF:
            continue
        read = Parting(
            name,
            match.value,
            match.layout,
            divergence.upstream(name, parting.known),
            relative_error(found, wanted),
            parting.before,
            divergence.after({name: wanted}),
        )
        if read.is_proven:
            return read
    return None


def _is_off_alone(region: Region) -> bool:
    """Say whether the last node of a place is off in some element: more than the last bits of what
    it reads could change, and where the original agrees with float64.
    """
    graph, name = region.graph, region.target
    node = graph.nodes[graph.producers[name]]
    try:
        read = graph.run([each for each in node.input if each], region.feeds)
        own = graph.run([name], {**region.feeds, **read})[name]
        exact, nudged = (_exact(graph, name, each) for each in (read, Nudged(read)))
    except PieceFailedError:
        return False
    if not own.shape == exact.shape == region.expected.shape:
        return False
    off = _parts_off(own, exact)
    noise = NOISE * _parts_off(nudged, exact)
    right = _parts_off(region.expected, exact) <= _OFF / 10
    return bool(((off > _OFF) & (off > noise) & right).any())


def _exact(graph: Graph, name: str, read: Values) -> np.ndarray:
    """Return a node's value in float64. Raises PieceFailedError."""
    return run_in_float64(graph, [name], dict(read))[name]


def _parts_off(found: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return how far each element is off, in parts of the larger of both; infinite for NaN on one
    side, and for other shapes.
    """
    if found.shape != expected.shape or {found.dtype.kind, expected.dtype.kind} != {"f"}:
        return np.array(math.inf)
    one, other = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(all="ignore"):
        off = np.abs(one - other) / np.maximum(np.abs(one), np.abs(other))
    alike = (one == other) | (np.isnan(one) & np.isnan(other))
    return np.where(alike, 0.0, np.where(np.isnan(off), math.inf, off))
