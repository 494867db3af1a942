"""How far two tensors are apart, in parts of what the values themselves are."""

import math
from collections.abc import Mapping

import numpy as np

from convkit.worker.cause.recording.mask_fill_values import HUGE, filled, has_no_fills, numbers
from convkit.worker.cause.recording.tensor_sketches import TINY, power

# Parts of a tensor's rms. Two correct computations of one value stay well within it, after dozens
# of layers as well; smaller faults are found by computing each value anew from the original's own.
CLOSE = 1e-4
# What any difference of whole numbers or truth values counts as, at least: they have no rounding,
# however large they are.
_WHOLE = 1e-2


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference relative to the expected values' RMS.

    Infinity if shapes differ or only one side is finite; values beyond 1e18 agree with each other
    if their signs do. Values that a mask filled in are compared in parts of themselves, and the
    others in parts of their own RMS. Whole numbers agree if they are equal.
    """
    if found.shape != expected.shape:
        return math.inf
    if not found.size:
        return 0.0
    if found.dtype.kind in "iub" and expected.dtype.kind in "iub":
        if np.array_equal(found, expected):
            return 0.0
        return max(_WHOLE, _plain_error(found, expected))
    if has_no_fills(expected):
        return _plain_error(found, expected)
    own, other = numbers(found), numbers(expected)
    if not np.array_equal(np.isnan(own), np.isnan(other)):
        return math.inf
    own, other = np.nan_to_num(own, nan=0.0), np.nan_to_num(other, nan=0.0)
    far = np.abs(other) > HUGE
    if not np.array_equal(far, np.abs(own) > HUGE) or (
        far.any() and (np.sign(own[far]) != np.sign(other[far])).any()
    ):
        return math.inf
    own, other = np.where(far, 0, own), np.where(far, 0, other)
    fills = filled(other)
    rms = float(np.sqrt(np.square(np.where(fills, 0, other)).mean()))
    scale = np.where(fills, np.abs(other), max(rms, TINY))
    return float((np.abs(own - other) / scale).max())


def _plain_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the error of values among which no mask filled in any."""
    single = found.dtype == expected.dtype == np.float32
    with np.errstate(all="ignore"):
        off = np.subtract(found, expected, dtype=np.float32 if single else np.float64)
    largest = float(max(abs(off.min()), abs(off.max())))  # NaN if any element is
    if not largest <= HUGE:
        return math.inf
    return largest / max(math.sqrt(power(expected)), TINY)


def largest_error(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> float:
    """Return the largest error of several tensors, in parts of their rms."""
    return max(
        relative_error(found[name], values) if name in found else math.inf
        for name, values in expected.items()
    )


def worst_values(found: np.ndarray, expected: np.ndarray) -> tuple[float, float] | None:
    """Return the found and the expected value of the element that is off by most."""
    if found.shape != expected.shape or not found.size or found.dtype.kind not in "fiub":
        return None
    with np.errstate(all="ignore"):
        error = np.abs(numbers(found) - numbers(expected))
    place = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    return float(found.flat[place]), float(expected.flat[place])
