"""Weights that are not the original's, and biases that nodes lack, as causes with their proof."""

import math
from collections.abc import Mapping

import numpy as np

from convkit.worker.cause.boundary.boundary_faults import outputs_error
from convkit.worker.cause.graphs.runnable_graph import Graph, Values, label
from convkit.worker.cause.matching.relative_difference import relative_error, worst_values
from convkit.worker.cause.recording.recorded_call import Recording
from convkit.worker.cause.search_types.divergence_place import FLOOR
from convkit.worker.cause.search_types.search_results import Cause
from convkit.worker.cause.weights.missing_biases import AbsentBias, absent_biases
from convkit.worker.cause.weights.other_checkpoint import (
    checkpoint_cause,
    is_another_checkpoint,
    paired_by_use,
)
from convkit.worker.cause.weights.traced_weights import (
    WeightDifference,
    WeightReport,
    compare_weights,
)
from convkit.worker.cause.weights.weight_only_values import precomputed

# Outputs this near, in parts of their rms, are the same.
SAME = 10 * FLOOR
# Places that are corrected one after the other: one fault in each layer of a small model.
PLACES = 8
# What corrected weights or added biases must leave at most of the error to matter.
_LESS = 0.9
# Up to this many differing weights are tried individually; more are one cause: another checkpoint.
_SINGLE = 8


def weight_causes(
    recording: Recording, graph: Graph, feeds: Values, state: Mapping[str, np.ndarray], error: float
) -> tuple[list[Cause], Graph, float]:
    """Return the weights that matter, the graph with the original's in their place, and its error.

    `error` is that of the graph as given.
    """
    report = _compared(recording, graph, state)
    differences = report.differences
    for paired in paired_by_use(recording, graph, state, report) if report.unknown else ():
        rest = (each for each in report.differences if each.weight not in paired)
        together = (*rest, *paired.values())
        if not is_another_checkpoint(report, together):
            break
        both = {each.weight: each.corrected for each in together}
        if outputs_error(recording, graph.with_nodes(graph.nodes, both), feeds) <= SAME:
            differences = together
            break
    if not differences:
        return [], graph, error
    every = {each.weight: each.corrected for each in differences}
    corrected = graph.with_nodes(graph.nodes, every)
    after = outputs_error(recording, corrected, feeds)
    if not after < error * _LESS and not (math.isinf(error) and after < error):
        return [], graph, error
    if len(differences) > _SINGLE or is_another_checkpoint(report, differences):
        return [checkpoint_cause(differences, error, after)], corrected, after
    causes = []
    for each in differences:
        others = {name: values for name, values in every.items() if name != each.weight}
        alone = outputs_error(recording, graph.with_nodes(graph.nodes, others), feeds)
        if alone > max(after * 2, SAME):
            causes.append(_weight_cause(graph, each, before=alone, after=after))
    return causes, corrected, after


def bias_causes(
    recording: Recording, graph: Graph, feeds: Values, state: Mapping[str, np.ndarray], error: float
) -> tuple[list[Cause], Graph, float]:
    """Return the biases that nodes lack, the graph with those that matter, and its error."""
    causes: list[Cause] = []
    if error <= SAME:
        return causes, graph, error
    for _ in range(PLACES):
        report = _compared(recording, graph, state)
        best: tuple[float, AbsentBias] | None = None
        for each in absent_biases(graph, state, report):
            after = outputs_error(recording, each.graph, feeds)
            if after < error * _LESS and (best is None or after < best[0]):
                best = after, each
        if best is None:
            break
        after, bias = best
        causes.append(
            Cause(
                "missing",
                f"{bias.node.op_type} {label(bias.node)} lacks a bias, the original's"
                f" {bias.original}",
                node=label(bias.node),
                tensor=bias.node.output[0],
                module=bias.original.split(" ")[0].rpartition(".")[0],
                corrected=0.0,
                before=error,
                after=after,
            )
        )
        graph, error = bias.graph, after
        if error <= SAME:
            break
    return causes, graph, error


def _compared(recording: Recording, graph: Graph, state: Mapping[str, np.ndarray]) -> WeightReport:
    return compare_weights(graph, state, _epsilons(recording), precomputed(recording))


def _epsilons(recording: Recording) -> dict[str, float]:
    """Return the epsilons of the original's batch norms, by module path."""
    return {
        operation.module: float(value)
        for operation in recording.operations
        if "batch_norm" in operation.name
        for name, value in operation.scalars
        if name in ("eps", "epsilon") and isinstance(value, int | float)
    }


def _weight_cause(
    graph: Graph, difference: WeightDifference, *, before: float, after: float
) -> Cause:
    readers = graph.readers.get(difference.weight, [])
    node = graph.nodes[readers[0]] if readers else None
    module = difference.original.split(" ")[0].rpartition(".")[0]
    found, expected = graph.constants[difference.weight], difference.corrected
    return Cause(
        "exchanged" if difference.instead is not None else "weight",
        f"the weight {difference.weight} is not the original's {difference.original}:"
        f" {difference.likeness.text}",
        node=label(node) if node is not None else None,
        tensor=difference.weight,
        module=module,
        error=relative_error(found, expected),
        corrected=0.0,
        before=before,
        after=after,
        values=worst_values(found, expected),
    )
