"""The input values at which a model decides, found by trying what it decides on many of them.

What is decided comes from the original's Python (`original.probing.followed_values`).
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np

# Values tried over an input's range, and decisions kept of one place: those nearest its middle.
_TRIED = 4097
_MOST_TURNS = 48
# What is nearer to zero than this, some processors flush: it is no value that people have.
_NEAREST_ZERO = 1e-19
# Halvings of an interval until its ends are neighbors in float64.
_HALVINGS = 1100


@dataclasses.dataclass(frozen=True)
class ValueDecision:
    """What a model rounds an input's elements to, compares them with, or looks them up by.

    `outcome` returns a number for each of many values of the input, in its type: equal numbers
    where the decision falls out alike. `place` is its `file:line`. `rounds`: a fraction becomes a
    whole number there.
    """

    tensor: str
    place: str
    operation: str
    outcome: Callable[[np.ndarray], np.ndarray] = dataclasses.field(compare=False)
    rounds: bool = False


def turning_values(
    decision: ValueDecision, low: float, high: float, dtype: np.dtype
) -> list[tuple[float, ...]]:
    """Return the neighbors in an input's type between which a decision changes from `low` to
    `high`, each pair with its own neighbors, those nearest the middle first.
    """
    values = np.unique(np.linspace(low, high, _TRIED).astype(dtype))
    found = _outcomes(decision, values)
    if found is None:
        return []
    (places,) = np.nonzero(_differ(found[:-1], found[1:]))
    middle = (low + high) / 2
    distance = np.abs(values[places].astype(np.float64) - middle)
    places = places[np.argsort(distance, kind="stable")][:_MOST_TURNS]
    below, above = values[places], values[places + 1]
    first = found[places]
    for _ in range(_HALVINGS if places.size else 0):
        between = _between(below, above)
        if ((between == below) | (between == above)).all():
            break
        if (there := _outcomes(decision, between)) is None:
            return []
        turned = _differ(first, there)
        above = np.where(turned, between, above)
        below = np.where(turned, below, between)
    return [
        tuple(each for each in _with_neighbors(one, other) if low <= each <= high)
        for one, other in zip(below, above, strict=True)
    ]


def in_turn(groups: Sequence[Sequence[tuple[float, ...]]]) -> Iterator[float]:
    """Yield the values around one decision after another, from each place in turn, once each."""
    seen: set[float] = set()
    for row in itertools.zip_longest(*groups, fillvalue=()):
        for value in itertools.chain.from_iterable(row):
            if value not in seen:
                seen.add(value)
                yield value


def _outcomes(decision: ValueDecision, values: np.ndarray) -> np.ndarray | None:
    """Return what a decision comes to for values; None if it cannot be made for them alone."""
    try:
        found = decision.outcome(values)
    except Exception:  # noqa: BLE001 - operations of the model's own code
        return None
    return found if found.shape == values.shape else None


def _differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one != other) & ~(np.isnan(one) | np.isnan(other))


def _between(below: np.ndarray, above: np.ndarray) -> np.ndarray:
    if below.dtype.kind in "iu":
        return below + (above - below) // 2
    # A sum of halves: infinity is between no two finite numbers.
    return (below / 2 + above / 2).astype(below.dtype)


def _with_neighbors(one: np.generic, other: np.generic) -> Iterator[float]:
    if one.dtype.kind in "iu":
        yield from (float(one), float(other))
        return
    least = max(_NEAREST_ZERO, float(np.finfo(one.dtype.name).tiny))
    down, up = (np.array(infinity, one.dtype) for infinity in (-np.inf, np.inf))
    for each in (np.nextafter(one, down), one, other, np.nextafter(other, up)):
        value = float(each)
        yield value if value == 0 or abs(value) >= least else math.copysign(least, value)
