"""What is wrong with a quantized weight, from the floats that it should hold.

Other zero points, scales, axes and signs are tried; the one that brings all values within half a
step is the cause.
"""

import dataclasses
from collections.abc import Callable

import numpy as np

from convkit.worker.cause.quantized.quantized_weight import QuantizedWeight

# The rounding error in steps, plus float32's own.
_HALF = 0.51
# The share of values that must be within it, of all and of each channel: quantizers leave out the
# odd outlier.
_MOST = 0.99
_IN_EACH = 0.75
# Scales that differ by less are the quantizer's own choice.
_SAME_SCALE = 0.02
_SHOWN = 4
# The cosine above which one slice of a weight is another, rounded.
_SAME_DIRECTION = 0.99
# Sizes of blocks that quantizers use, the largest first.
_BLOCKS = (256, 128, 64, 32, 16)


def quantization_fault(
    weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray
) -> str | None:
    """Return the fault that explains why a weight is not the original's, rounded; None if none
    does. `integers` are its numbers without the zero points; both are grouped as its scales are.
    """
    explanations = (explain(weight, integers, original) for explain in _EXPLANATIONS)
    return next((text for text in explanations if text is not None), None)


def fits(integers: np.ndarray, scale: np.ndarray, original: np.ndarray) -> bool:
    """Return True if values are within half a step of the original almost everywhere."""
    right = _within(integers, scale, original)
    # Elements that a quantizer clipped on purpose are few, in each channel as well.
    return bool(right.mean() >= _MOST and (_by_channel(right, scale) >= _IN_EACH).all())


def _within(integers: np.ndarray, scale: np.ndarray, original: np.ndarray) -> np.ndarray:
    """Return which values are within half a step of the original.

    The ends of the range are a step wide: of 4 bits, it holds -8 and not 8.
    """
    with np.errstate(all="ignore"):
        off = np.abs(integers - original / scale)
    ends = (integers == integers.min()) | (integers == integers.max())
    return np.asarray(off <= _HALF + 0.5 * ends)


def _by_channel(right: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return the share of values that are right under each scale."""
    axes = tuple(axis for axis, size in enumerate(scale.shape) if size == 1)
    return np.asarray(right.mean(axes or None, keepdims=True))


def swapped_pairs(weight: QuantizedWeight, axis: int) -> np.ndarray:
    return weight.numbers.take(np.arange(weight.numbers.shape[axis]) ^ 1, axis=axis)


def other_sign(weight: QuantizedWeight, numbers: np.ndarray) -> np.ndarray:
    """Return the same bits, reinterpreting unsigned numbers as signed and vice versa."""
    half = 1 << (weight.bits - 1)
    whole = numbers.astype(np.int64)
    return (whole ^ half) - half if weight.is_unsigned else whole & (2 * half - 1)


def _axis(weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray) -> str | None:
    if not weight.per_channel or weight.block:
        return None
    for axis, size in enumerate(integers.shape):
        if axis == weight.axis or size != weight.scale.size:
            continue
        shape = [1] * integers.ndim
        shape[axis] = -1
        numbers = weight.numbers.astype(np.float64) - weight.zero_point.reshape(shape)
        if fits(numbers, weight.scale.reshape(shape), original):
            return f"its scales apply along axis {weight.axis} and belong to axis {axis}"
    return None


def _transposed_scales(
    weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray
) -> str | None:
    """Look for scales of blocks that were written in the other order of their two axes."""
    if not weight.block or weight.numbers.ndim != 2:
        return None
    plain = weight.scale.squeeze(weight.axis + 1)
    # The file holds them in this order of axes, or in the other.
    for moved in (plain.reshape(plain.shape[::-1]).T, plain.T.reshape(plain.shape)):
        if fits(integers, np.expand_dims(moved, weight.axis + 1), original):
            return "the scales of its blocks are in transposed order"
    return None


def _sign(weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray) -> str | None:  # noqa: ARG001
    other = weight.grouped(other_sign(weight, weight.numbers)).astype(np.float64)
    zeros = other_sign(weight, weight.zero_point)
    for zero in (weight.zero_point, zeros, 0.0, float(1 << (weight.bits - 1))):
        if fits(other - zero, weight.scale, original):
            own, right = ("uint", "int") if weight.is_unsigned else ("int", "uint")
            return f"it is {own}{weight.bits} and its numbers are those of {right}{weight.bits}"
    return None


def _shifted_sign(
    weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray
) -> str | None:
    half = 1 << (weight.bits - 1)
    for step in (half, -half):
        if fits(integers + step, weight.scale, original):
            return (
                f"its zero points are off by {half}, as between signed and unsigned integers"
                f" (int{weight.bits} and uint{weight.bits})"
            )
    return None


def _pairs(weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray) -> str | None:  # noqa: ARG001
    """Look for numbers of 4 bits that share a byte in the other order."""
    axis = weight.pairs
    if axis is None or weight.numbers.shape[axis] % 2:
        return None
    swapped = weight.grouped(swapped_pairs(weight, axis)).astype(np.float64)
    if not fits(swapped - weight.zero_point, weight.scale, original):
        return None
    return "the two 4-bit numbers of each byte are swapped (low bits come first)"


def _block_size(weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray) -> str | None:
    """Look for another size of the blocks: the largest in which one step explains all numbers."""
    if not weight.block:
        return None
    for size in _BLOCKS:
        other = dataclasses.replace(weight, block=size)
        numbers, wanted = (other.grouped(weight.ungrouped(each)) for each in (integers, original))
        if fits(numbers, _fitted(numbers, wanted, (weight.axis + 1,)), wanted):
            if size == weight.block:
                return None
            return f"its block size is {weight.block} and it was rounded in blocks of {size}"
    return None


def _fitted(integers: np.ndarray, original: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    """Return the scale along some axes that rounds floats to these integers; 1 if all are 0.

    Each number bounds the scale from both sides; if the bounds exclude each other, the scale is the
    one with the least squares.
    """
    power = (integers * integers).sum(axes, keepdims=True)
    product = (integers * original).sum(axes, keepdims=True)
    best = np.where(power > 0, product / np.where(power > 0, power, 1), 1.0)
    steps = np.abs(integers)
    with np.errstate(all="ignore"):
        wanted = original * np.sign(integers) * np.sign(product)
        low = np.where(steps > 0, wanted / (steps + 0.5), -np.inf).max(axes, keepdims=True)
        high = np.where(steps > 0, wanted / (steps - 0.5), np.inf).min(axes, keepdims=True)
        middle = np.sign(product) * (low + high) / 2
    return np.where(np.isfinite(middle) & (low <= high), middle, best)


def _zero_point(weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray) -> str | None:
    """Look for other zero points: whole numbers that bring each channel back."""
    others = tuple(axis for axis in range(integers.ndim) if weight.scale.shape[axis] == 1)
    off = np.round(np.median(integers - original / weight.scale, axis=others, keepdims=True))
    if not off.any() or not fits(integers - off, weight.scale, original):
        return None
    wrong = np.flatnonzero(off)
    each = _each(weight)
    given, right = weight.zero_point.ravel().astype(np.int64), (weight.zero_point + off).ravel()
    if not weight.per_channel:
        return f"its zero point is {given[0]} and should be {right[0]:.0f}"
    shown = ", ".join(
        f"{each} {place}: {given[place]} instead of {right[place]:.0f}" for place in wrong[:_SHOWN]
    )
    return f"the zero point of {_count(wrong, off.size, each)} is wrong ({shown}{_more(wrong)})"


def _scale(weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray) -> str | None:
    """Fit a scale for each channel, or one for all."""
    others = tuple(axis for axis in range(integers.ndim) if weight.scale.shape[axis] == 1)
    share = _by_channel(_within(integers, weight.scale, original), weight.scale)
    fitted = _fitted(integers, original, others)
    # A scale that is slightly wrong still suits most small numbers.
    candidates = (np.where(share >= least, weight.scale, fitted) for least in (_IN_EACH, _MOST))
    right = next(
        (each for each in candidates if each.all() and fits(integers, each, original)), None
    )
    if right is None:
        return None
    ratio = (weight.scale / right).ravel()
    wrong = np.flatnonzero(np.abs(ratio - 1) > _SAME_SCALE)
    if not wrong.size:
        return None
    if not weight.per_channel:
        return f"its scale is {ratio[0]:.4g} times what it should be ({right.ravel()[0]:.4g})"
    each = _each(weight)
    shown = ", ".join(f"{each} {place}: {ratio[place]:.4g} times" for place in wrong[:_SHOWN])
    return (
        f"the scale of {_count(wrong, ratio.size, each)} along axis {weight.axis} is wrong"
        f" ({shown}{_more(wrong)} what it should be)"
    )


def _clipped(weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray) -> str | None:
    """Detect saturation: values beyond the integers' range at this scale."""
    low, high = integers.min(), integers.max()
    exact = original / weight.scale
    clipped = ((integers == high) & (exact > high + _HALF)) | (
        (integers == low) & (exact < low - _HALF)
    )
    if not clipped.any() or not fits(integers[~clipped], np.ones(1), exact[~clipped]):
        return None
    reach = float(np.abs(integers * weight.scale).max())
    return (
        f"its range is clipped: {clipped.mean():.0%} of its values saturate at the largest or"
        f" smallest integer; it reaches {reach:.4g}, the original {np.abs(original).max():.4g}"
    )


def _slices(weight: QuantizedWeight, integers: np.ndarray, original: np.ndarray) -> str | None:
    """Look for rows of one axis that are not the original's, among others that are."""
    if weight.block:
        return None
    with np.errstate(all="ignore"):
        values = integers * weight.scale
    right = _within(integers, weight.scale, original)
    for axis in range(integers.ndim):
        others = tuple(each for each in range(integers.ndim) if each != axis)
        fitting = right.mean(others) >= _IN_EACH
        wrong = np.flatnonzero(~fitting)
        if not 0 < wrong.size <= fitting.size // 2 or right.mean(others)[fitting].mean() < _MOST:
            continue
        shown = ", ".join(
            f"{place}{_held_by(values.take(place, axis), original, axis, place)}"
            for place in wrong[:_SHOWN]
        )
        return (
            f"{wrong.size} of {fitting.size} slices along axis {axis} are not the original's"
            f" ({shown}{_more(wrong)})"
        )
    return None


def _held_by(values: np.ndarray, original: np.ndarray, axis: int, place: int) -> str:
    """Say which other slice of the original a slice holds, up to its scale; empty if none."""
    wide = values.ravel()
    for other in range(original.shape[axis]):
        own = original.take(other, axis).ravel()
        power = float(np.sqrt((wide * wide).sum() * (own * own).sum()))
        if other != place and power and abs(float(wide @ own)) >= _SAME_DIRECTION * power:
            return f" holds that of {other}"
    return ""


def _each(weight: QuantizedWeight) -> str:
    return "block" if weight.block else "channel"


def _count(wrong: np.ndarray, size: int, each: str) -> str:
    if wrong.size == 1:
        return f"one {each}"
    return f"all {size} {each}s" if wrong.size == size else f"{wrong.size} of {size} {each}s"


def _more(wrong: np.ndarray) -> str:
    return ", ..." if wrong.size > _SHOWN else ""


# The first that brings every value back to half a step is the cause.
_EXPLANATIONS: tuple[Callable[[QuantizedWeight, np.ndarray, np.ndarray], str | None], ...] = (
    _axis,
    _transposed_scales,
    _pairs,
    _sign,
    _shifted_sign,
    _block_size,
    _zero_point,
    _scale,
    _clipped,
    _slices,
)
