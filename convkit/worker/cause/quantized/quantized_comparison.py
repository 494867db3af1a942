"""Compares quantized weights with the original's floats, to find the wrong number of a
quantization.

A correctly rounded weight is within half a step of the original everywhere.
"""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from convkit.worker.cause.graphs.runnable_graph import Graph, label
from convkit.worker.cause.matching.weight_derivation import permutations_of
from convkit.worker.cause.quantized.quantization_faults import (
    fits,
    other_sign,
    quantization_fault,
    swapped_pairs,
)
from convkit.worker.cause.quantized.quantized_weight import QuantizedWeight
from convkit.worker.cause.weights.fused_weights import derived_tensors

State = Mapping[str, np.ndarray]

_SAMPLE = 4096
# Weights of the original that are like a quantized one: so many are looked at closely.
_TRIED = 3
_RELATED = 0.5


@dataclasses.dataclass(frozen=True)
class QuantizedMatch:
    """A quantized weight and the original's values, in its layout.

    `problem` describes the fault in the quantization; None if there is none, or none is known.
    `nearest` says whether every value is rounded to the nearest step.
    """

    weight: QuantizedWeight
    original: str
    values: np.ndarray
    problem: str | None
    nearest: bool = True


def compare_quantized(weights: Sequence[QuantizedWeight], state: State) -> list[QuantizedMatch]:
    """Match quantized weights with the original's float weights; those without one are left out."""
    if not weights:
        return []
    # Convolutions are quantized with their batch norm folded in.
    shapes = {weight.numbers.shape for weight in weights}
    folded = {each.original: each.values for each in derived_tensors(state, shapes)}
    found = (_match(weight, {**state, **folded}) for weight in weights)
    return [match for match in found if match is not None]


def _match(weight: QuantizedWeight, state: State) -> QuantizedMatch | None:
    """Return the float weight that a quantized one was computed from: by name, otherwise by
    similarity.

    Among similar weights, the one that explains the integers is chosen.
    """
    shape = weight.numbers.shape
    moved = [
        (name, array.transpose(axes))
        for name, array in state.items()
        if array.dtype.kind == "f" and sorted(array.shape) == sorted(shape)
        for axes in permutations_of(array.ndim)
        if tuple(array.shape[axis] for axis in axes) == shape
    ]
    named = [
        each
        for each in moved
        if any(_is_name(each[0], own) for own in (weight.floats, weight.name))
    ]
    likely = sorted(
        ((_likeness(weight, values), name, values) for name, values in named or moved),
        key=lambda each: -each[0],
    )[:_TRIED]
    matches = []
    for likeness, name, values in likely:
        if named or likeness > _RELATED:
            right, problem = _verdict(weight, values)
            match = QuantizedMatch(weight, name, values, problem, right)
            if right:
                return match
            matches.append(match)
    return next((each for each in matches if each.problem), matches[0] if matches else None)


def _is_name(original: str, own: str) -> bool:
    return own == original or own.startswith((f"{original}_", f"{original}."))


def _likeness(weight: QuantizedWeight, values: np.ndarray) -> float:
    """Return the largest correlation of floats with a sample of the numbers, however read."""
    size = values.size
    places = np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.int64)
    floats = values.ravel()[places].astype(np.float64)
    best = 0.0
    for numbers in _readings(weight):
        integers = np.nan_to_num(numbers.ravel()[places].astype(np.float64))
        if floats.std() > 0 and integers.std() > 0:
            best = max(best, float(np.corrcoef(floats, integers)[0, 1]))
    return best


def _readings(weight: QuantizedWeight) -> Iterator[np.ndarray]:
    """Yield the numbers as they are, dequantized, and reinterpreted as other types."""
    yield weight.numbers
    yield weight.values
    yield other_sign(weight, weight.numbers)
    if weight.pairs is not None and weight.numbers.shape[weight.pairs] % 2 == 0:
        yield swapped_pairs(weight, weight.pairs)


def _verdict(weight: QuantizedWeight, values: np.ndarray) -> tuple[bool, str | None]:
    """Return whether a weight is the correct quantization of the given values; if not, the fault if
    known.
    """
    original = weight.grouped(values.astype(np.float64))
    if not np.isfinite(weight.scale).all() or not weight.scale.all():
        return False, "a scale is zero or not finite"
    integers = weight.grouped(weight.numbers).astype(np.float64) - weight.zero_point
    if fits(integers, weight.scale, original):
        return True, None  # quantizers to 4 bits write negative scales as well
    return False, quantization_fault(weight, integers, original)


def with_floats(graph: Graph, matches: Sequence[QuantizedMatch]) -> Graph:
    """Return a lowered graph with the original's floats instead of the given quantized weights."""
    floats = {
        match.weight.floats: match.values.astype(np.float32).copy(order="C") for match in matches
    }
    return graph.with_nodes(graph.nodes, floats)


def node_name(match: QuantizedMatch) -> str:
    """Return the name of the node that a quantized weight is read by."""
    return label(match.weight.node)
