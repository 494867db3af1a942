"""Causes in a graph's quantized weights: one that was quantized wrongly, or the rounding itself."""

from collections.abc import Callable

import numpy as np

from convkit.localize.diagnosis import Cause
from convkit.localize.graph import Graph
from convkit.localize.quantized import (
    QuantizedMatch,
    State,
    compare_quantized,
    node_name,
    with_floats,
)

# The share of the error that the rounding must explain, to be named as its cause.
_MOST = 0.9
_CHANGES = 0.95


def quantized_causes(
    graph: Graph, state: State, error: float, error_of: Callable[[Graph], float]
) -> tuple[list[Cause], Graph]:
    """Return the faults in quantized weights, and the graph with the original's floats.

    `error` is that of the graph's outputs, `error_of` computes another graph's. If no weight is
    wrong, the rounding of all of them is a cause if it explains nearly all of the error.
    """
    matches = compare_quantized(graph, state)
    if not matches:
        return [], graph
    floats = with_floats(graph, matches)
    causes = []
    for match in matches:
        if match.problem is None:
            continue
        after = error_of(with_floats(graph, [match]))
        if after < error * _CHANGES:
            causes.append(_cause(match, match.problem, error, after))
    if not causes:
        after = error_of(floats)
        if after < error * (1 - _MOST):
            causes.append(_rounding(matches, error, after))
    return causes, floats


def _cause(match: QuantizedMatch, problem: str, before: float, after: float) -> Cause:
    return Cause(
        "quantized",
        f"the quantized weight {match.weight.name} is not the original's {match.original}:"
        f" {problem}",
        node=node_name(match),
        tensor=match.weight.name,
        module=match.original.rpartition(".")[0],
        before=before,
        after=after,
    )


def _rounding(matches: list[QuantizedMatch], before: float, after: float) -> Cause:
    bits = sorted({8 * match.weight.numbers.dtype.itemsize for match in matches})
    worst = max(matches, key=_step)
    return Cause(
        "rounding",
        f"{len(matches)} weights are rounded to {' and '.join(map(str, bits))} bits, correctly;"
        f" {worst.weight.name} has the coarsest step for its values",
        node=node_name(worst),
        tensor=worst.weight.name,
        module=worst.original.rpartition(".")[0],
        before=before,
        after=after,
    )


def _step(match: QuantizedMatch) -> float:
    """Return a weight's largest step in parts of its values' rms."""
    rms = float(np.sqrt((match.values.astype(np.float64) ** 2).mean()))
    return float(match.weight.scale.max()) / rms if rms else 0.0
