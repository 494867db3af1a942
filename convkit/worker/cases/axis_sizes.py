"""Axis sizes for the cases: distinguishable, and affordable."""

import itertools
import math
from collections.abc import Iterable

from convkit.protocol.contract import Axis, Contract

# Small and distinct, so that no two axes can be confused; the first one is for the first axis,
# usually the batch.
_SMALL_SIZES = (3, 7, 11, 5, 13, 9, 17)


def smallest_sizes(contract: Contract) -> dict[str, int]:
    """Return every axis's minimum."""
    return {axis.name: axis.min for axis in contract.axes}


def largest_sizes(contract: Contract) -> dict[str, int]:
    """Return every axis's maximum."""
    return {axis.name: axis.max for axis in contract.axes}


def probe_sizes(contract: Contract) -> dict[str, int]:
    """Return small sizes within the axes' ranges, distinct if the ranges allow."""
    small = itertools.cycle(_SMALL_SIZES)
    return {axis.name: max(axis.min, min(axis.max, next(small))) for axis in contract.axes}


def off_typical_sizes(contract: Contract) -> dict[str, int] | None:
    """Return distinct sizes other than each axis's minimum, typical and maximum size; None if no
    axis varies.

    Primes near the middle of the range (on a logarithmic scale) are preferred: a graph cannot be
    specialized to a divisor of them. An axis without such a size gets any size other than its
    typical one, if it has one.
    """
    if all(axis.min == axis.max for axis in contract.axes):
        return None
    sizes: dict[str, int] = {}
    for axis in contract.axes:
        sizes[axis.name] = _off_typical(axis, set(sizes.values()))
    return sizes


def _off_typical(axis: Axis, taken: set[int]) -> int:
    special = {axis.min, axis.typical, axis.max}
    middle = math.sqrt(axis.min * axis.max)
    inside = [size for size in _around(round(middle), axis) if size not in special | taken]
    primes = [size for size in inside if _is_prime(size)]
    others = [size for size in (axis.max, axis.min) if size != axis.typical]
    for choice in (primes, inside, [size for size in others if size not in taken], others):
        if choice:
            return choice[0]
    return axis.typical


def nearest_prime(middle: int, low: int, high: int) -> int:
    """Return the prime nearest to `middle` from `low` to `high`; if there is none, the nearest
    number.
    """
    inside = min(max(middle, low), high)
    near = Axis("", low, inside, high)
    return next((size for size in _around(inside, near) if _is_prime(size)), inside)


def _around(middle: int, axis: Axis) -> Iterable[int]:
    """Return sizes of an axis, nearest to `middle` first; no more than needed to find a prime."""
    reach = min(axis.max - axis.min, 200)
    for distance in range(reach + 1):
        for size in dict.fromkeys((middle + distance, middle - distance)):
            if axis.min <= size <= axis.max:
                yield size


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))
