"""The largest errors of an output by the size of the values around them.

Rounding is proportional to what a sum adds up, which an element beside it shows better than the
element itself: two large terms may cancel. But a column of probabilities says nothing about the
rounding of a column near 1e7, nor the other way round. So the scale of an element is the smallest
of the largest magnitudes in its row, its column, and so on for every axis.
"""

import math
from collections.abc import Iterator

import numpy as np

from convkit.protocol.float_limits import SMALLEST_NORMAL
from convkit.protocol.messages import ErrorAtScale
from convkit.protocol.metrics.limit_kinds import float32_unit

# A slice with fewer elements may be small by chance, by cancellation in each of them.
_ENOUGH = 4
# Ten units in the last place of float32, which the default tolerance allows, are 1e-5 here: below
# any usual limit, so that which scale an element has makes no difference.
_LARGE = 16.0
# Elements per block: its few float64 arrays stay small.
_BLOCK = 1 << 18

_Block = tuple[slice, np.ndarray, np.ndarray]


def largest_in_units(reference: np.ndarray, candidate: np.ndarray) -> float:
    """Return the largest error in units in the last place of float32 at its scale; infinity for a
    difference that is not finite.
    """
    error = np.abs(reference - candidate)
    if not np.isfinite(error).all():
        return math.inf
    largest = float(np.abs(reference).max(where=error > 0, initial=0.0))
    found = errors_by_scale(reference, candidate, None, largest)
    if not found:
        highest = float(error.max(initial=0.0))
        return highest / (float32_unit(largest) or SMALLEST_NORMAL) if highest > 0 else 0.0
    return max(each.error / float32_unit(each.scale) for each in found)


def errors_by_scale(
    reference: np.ndarray, candidate: np.ndarray, padding: np.ndarray | None, largest: float
) -> tuple[ErrorAtScale, ...]:
    """Return the largest errors at each scale, from the smallest scale to the largest; empty if all
    elements have one scale.

    `reference` and `candidate` are floats of one shape, maybe memory-mapped; `padding` is as in
    `compare`, and `largest` is the reference's largest magnitude among elements that differ. Scales
    are powers of two. An error that another exceeds at a smaller scale is left out.
    """
    axes = [
        axis
        for axis, length in enumerate(reference.shape)
        if length > 1 and reference.size >= _ENOUGH * length
    ]
    if not largest >= _LARGE or not axes:
        return ()
    maxima = {axis: np.zeros(reference.shape[axis]) for axis in axes}
    for rows, magnitude, _ in _blocks(reference, candidate, padding):
        for axis, found in maxima.items():
            others = tuple(each for each in range(magnitude.ndim) if each != axis)
            within = found[rows] if axis == 0 else found
            np.maximum(within, magnitude.max(axis=others), out=within)
    smallest = min(float(found[found > 0].min(initial=largest)) for found in maxima.values())
    if _exponent(smallest) == _exponent(largest):
        return ()
    worst: dict[int, tuple[float, int]] = {}
    for rows, magnitude, error in _blocks(reference, candidate, padding):
        exponents = _exponents(maxima, rows, magnitude)
        for exponent in np.unique(exponents[error > 0]).tolist():
            at_scale = np.where(exponents == exponent, error, 0.0)
            place = int(at_scale.argmax())
            found_here = float(at_scale.reshape(-1)[place])
            if found_here > worst.get(exponent, (0.0, 0))[0]:
                worst[exponent] = found_here, rows.start * (error.size // len(error)) + place
    return tuple(_rising(reference, candidate, worst))


def _blocks(
    reference: np.ndarray, candidate: np.ndarray, padding: np.ndarray | None
) -> Iterator[_Block]:
    """Yield blocks of rows: magnitudes of the elements that differ (0 for others), and errors."""
    rows = max(1, _BLOCK // max(1, reference.size // len(reference)))
    for start in range(0, len(reference), rows):
        block = slice(start, min(start + rows, len(reference)))
        expected = reference[block].astype(np.float64)
        with np.errstate(all="ignore"):
            error = np.abs(candidate[block].astype(np.float64) - expected)
        error[~(np.isfinite(error) & (error >= SMALLEST_NORMAL))] = 0.0
        if padding is not None:
            aside = padding[block]
            error[aside] = 0.0
        yield block, np.where(error > 0, np.abs(expected), 0.0), error


def _exponents(maxima: dict[int, np.ndarray], rows: slice, magnitude: np.ndarray) -> np.ndarray:
    """Return the exponent of each element's scale."""
    scale = np.full(magnitude.shape, np.inf)
    for axis, found in maxima.items():
        shape = [-1 if each == axis else 1 for each in range(magnitude.ndim)]
        np.minimum(scale, (found[rows] if axis == 0 else found).reshape(shape), out=scale)
    exponents: np.ndarray = np.frexp(scale)[1]
    return exponents


def _exponent(magnitude: float) -> int:
    return int(np.frexp(magnitude)[1])


def _rising(
    reference: np.ndarray, candidate: np.ndarray, worst: dict[int, tuple[float, int]]
) -> Iterator[ErrorAtScale]:
    highest = 0.0
    for exponent, (error, place) in sorted(worst.items()):
        if error > highest:
            highest = error
            index = tuple(int(each) for each in np.unravel_index(place, reference.shape))
            values = float(reference[index]), float(candidate[index])
            yield ErrorAtScale(float(np.ldexp(1.0, exponent - 1)), error, index, *values)
