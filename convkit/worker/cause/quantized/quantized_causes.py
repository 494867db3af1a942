"""Causes in what a graph quantizes: a weight or an activation that was quantized wrongly, or the
rounding itself.
"""

from collections.abc import Callable

from convkit.worker.cause.graphs.runnable_graph import Graph, Values
from convkit.worker.cause.quantized.float_lowering import lowered
from convkit.worker.cause.quantized.quantized_activations import quantizers, unrounded, wrong_ranges
from convkit.worker.cause.quantized.quantized_comparison import (
    QuantizedMatch,
    State,
    compare_quantized,
    node_name,
    with_floats,
)
from convkit.worker.cause.search_types.search_results import Cause
from convkit.worker.metrics.magnitudes import rms

# The share of the error that the rounding must explain, to be named as its cause.
_MOST = 0.9
_CHANGES = 0.95


def quantized_causes(
    graph: Graph, state: State, feeds: Values, error: float, error_of: Callable[[Graph], float]
) -> tuple[list[Cause], Graph, float]:
    """Return the faults in what is quantized, the graph with floats in its place, and its error.

    `error` is that of the graph's outputs for `feeds`, `error_of` computes another graph's. If
    nothing is quantized wrongly, the rounding is a cause if it explains nearly all of the error.
    """
    floating, weights = lowered(graph)
    matches = compare_quantized(weights, state)
    rounded = quantizers(floating)
    if not matches and not rounded:
        return [], graph, error
    if any(each.op_type != "DequantizeLinear" for each in (match.weight.node for match in matches)):
        # What an integer kernel itself does wrong is not the weight's fault.
        error = error_of(floating)
    floats = with_floats(floating, matches)
    causes = _wrong_weights(floating, matches, error, error_of)
    after = error_of(floats)
    if rounded and after > error * (1 - _MOST):
        causes += wrong_ranges(floats, rounded, feeds, after, error_of)
    # Other faults are searched for in a graph without rounding.
    free = unrounded(floats, rounded)
    rest = error_of(free) if rounded else after
    if not causes and matches and after < error * (1 - _MOST):
        causes.append(_rounding(matches, 0, error, after))
    elif not causes and matches and rest < error * (1 - _MOST):
        causes.append(_rounding(matches, len(rounded), error, rest))
    return (causes, free, rest) if rest <= after else (causes, floats, after)


def _wrong_weights(
    floating: Graph, matches: list[QuantizedMatch], error: float, error_of: Callable[[Graph], float]
) -> list[Cause]:
    """Return the weights that were quantized wrongly, and whose correction lessens the error. If
    none does so alone, all are corrected at once: scales of two layers that were swapped cancel
    out, and one of them put right makes the outputs worse.
    """
    wrong = [match for match in matches if match.problem is not None]
    alone = [(each, error_of(with_floats(floating, [each]))) for each in wrong]
    found = [(each, after) for each, after in alone if after < error * _CHANGES]
    if not found and len(wrong) > 1:
        together = error_of(with_floats(floating, wrong))
        found = [(each, together) for each in wrong if together < error * _CHANGES]
    return [_cause(each, each.problem or "", error, after) for each, after in found]


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


def _rounding(
    matches: list[QuantizedMatch], activations: int, before: float, after: float
) -> Cause:
    bits = sorted({match.weight.bits for match in matches})
    worst = max(matches, key=_step)
    away = sum(not match.nearest for match in matches)
    how = f"{away} of them not to the nearest step" if away else "correctly"
    return Cause(
        "rounding",
        f"{_counted(len(matches), activations)} rounded to {' and '.join(map(str, bits))} bits,"
        f" {how}; {worst.weight.name} has the coarsest step for its values",
        node=node_name(worst),
        tensor=worst.weight.name,
        module=worst.original.rpartition(".")[0],
        before=before,
        after=after,
    )


def _counted(weights: int, activations: int) -> str:
    what = "one weight" if weights == 1 else f"{weights} weights"
    if activations:
        return f"{what} and {activations} activation{'s' * (activations > 1)} are"
    return f"{what} {'is' if weights == 1 else 'are'}"


def _step(match: QuantizedMatch) -> float:
    """Return a weight's largest step in parts of its values' rms."""
    size = rms(match.values)
    return float(match.weight.scale.max()) / size if size else 0.0
