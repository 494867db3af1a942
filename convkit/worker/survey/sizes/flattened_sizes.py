"""Solves for the size of an axis at which what a model computes fits what it has: flattened
features the layer that reads them, positions a table of them.
"""

import re
from collections.abc import Mapping, Sequence

from convkit.protocol.contract import TensorSpec

# torch names both sizes: those of the features, and those that the layer's weight has.
_MISMATCH = re.compile(
    r"shapes cannot be multiplied \(\d+x(?P<found>\d+) and (?P<wanted>\d+)x\d+\)"
)
# Two tensors that are added: either may be the one that the axis makes.
_UNEQUAL = re.compile(
    r"size of tensor a \((?P<one>\d+)\) must match the size of tensor b \((?P<other>\d+)\)"
)
# Strides and windows without padding leave out part of an axis, so the first guess can be off.
_MOST_GUESSES = 6
_LARGEST = 4096


class SolvedSizes:
    """Sizes of `axis` to try for one choice of shapes, from what did not fit so far.

    Flattened features grow with the axis's size to the power of how often a shape contains it: a
    side of a square image counts twice.
    """

    def __init__(self, inputs: Sequence[TensorSpec], axis: str) -> None:
        self._axis = axis
        self._power = max(spec.shape.count(axis) for spec in inputs)
        # By the features that are wanted: sizes, and the root of how many features each makes.
        self._seen: dict[int, dict[int, float]] = {}
        self._guesses = 0
        # Of tensors that are added, those seen at a size: what stays as it is is what is wanted.
        self._pairs: list[tuple[int, int]] = []

    def next_sizes(self, sizes: Mapping[str, int], reason: str) -> dict[str, int] | None:
        """Return sizes that have not been tried and may fit, after a run that failed for `reason`;
        None if there are none.
        """
        mismatch = self._mismatch(sizes[self._axis], reason)
        if mismatch is None:
            return None
        found, wanted = mismatch
        seen = self._seen.setdefault(wanted, {})
        seen[sizes[self._axis]] = found ** (1 / self._power)
        if self._guesses == _MOST_GUESSES:
            return None
        guess = _solved(seen, wanted ** (1 / self._power))
        near = (guess, guess + 1, guess - 1)
        size = next((each for each in near if 0 < each <= _LARGEST and each not in seen), None)
        self._guesses += 1
        return {**sizes, self._axis: size} if size is not None else None

    def _mismatch(self, size: int, reason: str) -> tuple[int, int] | None:
        """Return what there was and what was wanted, by a failed run's reason."""
        if (read := _MISMATCH.search(reason)) is not None:
            return int(read["found"]), int(read["wanted"])
        if (read := _UNEQUAL.search(reason)) is None:
            return None
        one, other = int(read["one"]), int(read["other"])
        stays = bool(self._pairs) and one == self._pairs[-1][0]
        self._pairs.append((one, other))
        return (other, one) if stays or other == size else (one, other)


def _solved(seen: Mapping[int, float], wanted: float) -> int:
    """Return the size at which a straight line through the two nearest points reaches `wanted`; in
    proportion to the only point if there is one.
    """
    nearest = sorted(seen, key=lambda size: abs(seen[size] - wanted))
    size, root = nearest[0], seen[nearest[0]]
    if len(nearest) == 1 or seen[nearest[1]] == root:
        return round(size * wanted / root) if root else 0
    slope = (nearest[1] - size) / (seen[nearest[1]] - root)
    return round(size + (wanted - root) * slope)
