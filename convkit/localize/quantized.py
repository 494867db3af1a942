"""Compares quantized weights with the original's floats, to find the wrong number of a
quantization.

A correctly rounded weight is within half a step of the original everywhere. If it is not, other
zero points, scales, axes and signs are tried; the one that brings all values within half a step is
the cause.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import onnx

from convkit.localize.fused import derived_tensors
from convkit.localize.graph import Graph, label
from convkit.localize.likeness import permutations_of

State = Mapping[str, np.ndarray]

# The rounding error in steps, plus float32's own.
_HALF = 0.51
# The share of values that must be within it: quantizers leave out the odd outlier.
_MOST = 0.99
# Scales that differ by less are the quantizer's own choice.
_SAME_SCALE = 0.02
_SAMPLE = 4096
# Weights of the original that are like a quantized one: so many are looked at closely.
_TRIED = 3
_RELATED = 0.5
_SHOWN = 4


@dataclasses.dataclass(frozen=True)
class QuantizedWeight:
    """A DequantizeLinear of constants: its numbers, and scales and zero points shaped to them."""

    node: onnx.NodeProto
    numbers: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int

    @property
    def name(self) -> str:
        """The name of the integers."""
        return str(self.node.input[0])

    @property
    def output(self) -> str:
        """The name of the values that the node computes."""
        return str(self.node.output[0])

    @property
    def per_channel(self) -> bool:
        """Whether there is a scale for each channel."""
        return self.scale.size > 1


@dataclasses.dataclass(frozen=True)
class QuantizedMatch:
    """A quantized weight and the original's values, in its layout.

    `problem` describes the fault in the quantization; None if there is none.
    """

    weight: QuantizedWeight
    original: str
    values: np.ndarray
    problem: str | None


def compare_quantized(graph: Graph, state: State) -> list[QuantizedMatch]:
    """Match every quantized weight of a graph with the original's float weight."""
    weights = list(quantized_weights(graph))
    if not weights:
        return []
    # Convolutions are quantized with their batch norm folded in.
    shapes = {weight.numbers.shape for weight in weights}
    folded = {each.original: each.values for each in derived_tensors(state, shapes)}
    found = (_match(weight, {**state, **folded}) for weight in weights)
    return [match for match in found if match is not None]


def quantized_weights(graph: Graph) -> Iterator[QuantizedWeight]:
    """Yield the weights that DequantizeLinear nodes compute from constants."""
    for node in graph.nodes:
        if node.op_type != "DequantizeLinear" or any(
            name not in graph.constants for name in node.input if name
        ):
            continue
        numbers, scale = (graph.constants[name] for name in node.input[:2])
        zero = graph.constants[node.input[2]] if len(node.input) > 2 and node.input[2] else None
        axis = next((each.i for each in node.attribute if each.name == "axis"), 1)
        axis += numbers.ndim if axis < 0 else 0
        blocks = any(each.name == "block_size" and each.i for each in node.attribute)
        if blocks or numbers.ndim < 2 or numbers.dtype.kind not in "iu":
            continue
        shape = [1] * numbers.ndim
        if scale.size > 1:
            if not axis < numbers.ndim or scale.size != numbers.shape[axis]:
                continue  # the lint reports it
            shape[axis] = -1
        zeros = np.zeros_like(scale, numbers.dtype) if zero is None else zero
        if zeros.size != scale.size:
            continue
        yield QuantizedWeight(
            node, numbers, scale.astype(np.float64).reshape(shape), zeros.reshape(shape), axis
        )


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
        if any(_is_name(each[0], own) for own in (weight.output, weight.name))
    ]
    likely = sorted(
        ((_likeness(weight, values), name, values) for name, values in named or moved),
        key=lambda each: -each[0],
    )[:_TRIED]
    matches = []
    for likeness, name, values in likely:
        if named or likeness > _RELATED:
            right, problem = _verdict(weight, values)
            match = QuantizedMatch(weight, name, values, problem)
            if right:
                return match
            matches.append(match)
    return next((each for each in matches if each.problem), matches[0] if matches else None)


def _is_name(original: str, own: str) -> bool:
    return own == original or own.startswith((f"{original}_", f"{original}."))


def _likeness(weight: QuantizedWeight, values: np.ndarray) -> float:
    """Return the largest correlation of a sample of the integers, of either sign, with floats."""
    size = values.size
    places = np.linspace(0, size - 1, min(size, _SAMPLE)).astype(np.int64)
    floats = values.ravel()[places].astype(np.float64)
    best = 0.0
    for numbers in (weight.numbers, _other_sign(weight.numbers)):
        integers = numbers.ravel()[places].astype(np.float64)
        if floats.std() > 0 and integers.std() > 0:
            best = max(best, float(np.corrcoef(floats, integers)[0, 1]))
    return best


def _other_sign(numbers: np.ndarray) -> np.ndarray:
    """Return the same bytes, reinterpreting unsigned as signed and vice versa."""
    kind = "i" if numbers.dtype.kind == "u" else "u"
    return np.ascontiguousarray(numbers).view(np.dtype(f"{kind}{numbers.dtype.itemsize}"))


def _verdict(weight: QuantizedWeight, values: np.ndarray) -> tuple[bool, str | None]:
    """Return whether a weight is the correct quantization of the given values; if not, the fault if
    known.
    """
    original = values.astype(np.float64)
    if not np.isfinite(weight.scale).all() or not (weight.scale > 0).all():
        return False, "a scale is zero, negative or not finite"
    integers = weight.numbers.astype(np.float64) - weight.zero_point
    if _fits(integers, weight.scale, original):
        return True, None
    told = (explain(weight, integers, original) for explain in _EXPLANATIONS)
    return False, next((text for text in told if text is not None), None)


def _fits(integers: np.ndarray, scale: np.ndarray, original: np.ndarray) -> bool:
    """Return True if values are within half a step of the original almost everywhere."""
    with np.errstate(all="ignore"):
        off = np.abs(integers - original / scale)
        # Elements that a quantizer clipped on purpose are few; the channel's own fit decides.
        return bool((off <= _HALF).mean() >= _MOST)


def _axis(weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray) -> str | None:
    if not weight.per_channel:
        return None
    for axis, size in enumerate(integers.shape):
        if axis == weight.axis or size != weight.scale.size:
            continue
        shape = [1] * integers.ndim
        shape[axis] = -1
        numbers = weight.numbers.astype(np.float64) - weight.zero_point.reshape(shape)
        if _fits(numbers, weight.scale.reshape(shape), original):
            return f"its scales apply along axis {weight.axis} and belong to axis {axis}"
    return None


def _sign(weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray) -> str | None:  # noqa: ARG001
    other = _other_sign(weight.numbers)
    half = float(2 ** (8 * other.dtype.itemsize - 1))
    for zero in (weight.zero_point.astype(np.float64), _other_sign(weight.zero_point), 0.0, half):
        if _fits(other.astype(np.float64) - zero, weight.scale, original):
            return f"it is {weight.numbers.dtype} and its numbers are those of {other.dtype}"
    return None


def _shifted_sign(
    weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray
) -> str | None:
    half = 2 ** (8 * weight.numbers.dtype.itemsize - 1)
    for step in (half, -half):
        if _fits(integers + step, weight.scale, original):
            return (
                f"its zero points are off by {half}, as between signed and unsigned integers"
                f" (int8 and uint8)"
            )
    return None


def _zero_point(weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray) -> str | None:
    """Look for other zero points: whole numbers that bring each channel back."""
    others = tuple(axis for axis in range(integers.ndim) if weight.scale.shape[axis] == 1)
    off = np.round(np.median(integers - original / weight.scale, axis=others, keepdims=True))
    if not off.any() or not _fits(integers - off, weight.scale, original):
        return None
    wrong = np.flatnonzero(off)
    given, right = weight.zero_point.ravel().astype(np.int64), (weight.zero_point + off).ravel()
    if not weight.per_channel:
        return f"its zero point is {given[0]} and should be {right[0]:.0f}"
    shown = ", ".join(
        f"channel {place}: {given[place]} instead of {right[place]:.0f}" for place in wrong[:_SHOWN]
    )
    return f"the zero point of {_count(wrong, off.size)} is wrong ({shown}{_more(wrong)})"


def _scale(weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray) -> str | None:
    """Fit a scale for each channel, or one for all."""
    others = tuple(axis for axis in range(integers.ndim) if weight.scale.shape[axis] == 1)
    power = (integers * integers).sum(others, keepdims=True)
    right = (integers * original).sum(others, keepdims=True) / np.where(power > 0, power, 1)
    if not (right > 0).all() or not _fits(integers, right, original):
        return None
    ratio = (weight.scale / right).ravel()
    wrong = np.flatnonzero(np.abs(ratio - 1) > _SAME_SCALE)
    if not wrong.size:
        return None
    if not weight.per_channel:
        return f"its scale is {ratio[0]:.4g} times what it should be ({right.ravel()[0]:.4g})"
    shown = ", ".join(f"channel {place}: {ratio[place]:.4g} times" for place in wrong[:_SHOWN])
    return (
        f"the scale of {_count(wrong, ratio.size)} along axis {weight.axis} is wrong"
        f" ({shown}{_more(wrong)} what it should be)"
    )


def _clipped(weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray) -> str | None:
    """Detect saturation: values beyond the integers' range at this scale."""
    low, high = integers.min(), integers.max()
    exact = original / weight.scale
    clipped = ((integers == high) & (exact > high + _HALF)) | (
        (integers == low) & (exact < low - _HALF)
    )
    if not clipped.any() or not _fits(integers[~clipped], np.ones(()), exact[~clipped]):
        return None
    reach = float(np.abs(integers * weight.scale).max())
    return (
        f"its range is clipped: {clipped.mean():.0%} of its values saturate at the largest or"
        f" smallest integer; it reaches {reach:.4g}, the original {np.abs(original).max():.4g}"
    )


def _count(wrong: np.ndarray, size: int) -> str:
    if wrong.size == 1:
        return "one channel"
    return f"all {size} channels" if wrong.size == size else f"{wrong.size} of {size} channels"


def _more(wrong: np.ndarray) -> str:
    return ", ..." if wrong.size > _SHOWN else ""


# The first that brings every value back to half a step is the cause.
_EXPLANATIONS: tuple[Callable[[QuantizedWeight, np.ndarray, np.ndarray], str | None], ...] = (
    _axis,
    _sign,
    _shifted_sign,
    _zero_point,
    _scale,
    _clipped,
)


def with_floats(graph: Graph, matches: list[QuantizedMatch]) -> Graph:
    """Return the graph with the original's floats instead of the given quantized weights."""
    floats = {
        match.weight.output: match.values.astype(np.float32).copy(order="C") for match in matches
    }
    kept = [node for node in graph.nodes if not floats.keys() & set(node.output)]
    return graph.with_nodes(kept, floats)


def node_name(match: QuantizedMatch) -> str:
    """Return the name of the node that a quantized weight is read by."""
    return label(match.weight.node)
