"""Causes in a graph's quantized weights: one that was quantized wrongly, or the rounding itself."""

from collections.abc import Callable

import numpy as np

from convkit.localize.diagnosis import Cause
from convkit.localize.graph import Graph
from convkit.localize.lowering import lowered
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
) -> tuple[list[Cause], Graph, float]:
    """Return the faults in quantized weights, the graph with the original's floats, and its error.

    `error` is that of the graph's outputs, `error_of` computes another graph's. If no weight is
    wrong, the rounding of all of them is a cause if it explains nearly all of the error.
    """
    floating, weights = lowered(graph)
    matches = compare_quantized(weights, state)
    if not matches:
        return [], graph, error
    if any(each.op_type != "DequantizeLinear" for each in (match.weight.node for match in matches)):
        # What an integer kernel itself does wrong is not the weight's fault.
        error = error_of(floating)
    floats = with_floats(floating, matches)
    causes = []
    for match in matches:
        if match.problem is None:
            continue
        after = error_of(with_floats(floating, [match]))
        if after < error * _CHANGES:
            causes.append(_cause(match, match.problem, error, after))
    after = error_of(floats)
    if not causes and after < error * (1 - _MOST):
        causes.append(_rounding(matches, error, after))
    return causes, floats, after


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
    bits = sorted({match.weight.bits for match in matches})
    worst = max(matches, key=_step)
    away = sum(not match.nearest for match in matches)
    how = f"{away} of them not to the nearest step" if away else "correctly"
    return Cause(
        "rounding",
        f"{_weights(len(matches))} rounded to {' and '.join(map(str, bits))} bits, {how};"
        f" {worst.weight.name} has the coarsest step for its values",
        node=node_name(worst),
        tensor=worst.weight.name,
        module=worst.original.rpartition(".")[0],
        before=before,
        after=after,
    )


def _weights(count: int) -> str:
    return "one weight is" if count == 1 else f"{count} weights are"


def _step(match: QuantizedMatch) -> float:
    """Return a weight's largest step in parts of its values' rms."""
    rms = float(np.sqrt((match.values.astype(np.float64) ** 2).mean()))
    return float(match.weight.scale.max()) / rms if rms else 0.0
