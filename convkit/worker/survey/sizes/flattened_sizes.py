"""Solves for the size of an axis at which what a model computes fits what it has: flattened
features the layer that reads them, positions a table of them.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence

from convkit.protocol.contract import TensorSpec

# torch names both sizes: those of the features, and those that a layer has: one that is linear,
# recurrent, normalizes, attends or convolves.
_MISMATCHES = tuple(
    map(
        re.compile,
        (
            r"shapes cannot be multiplied \(\d+x(?P<found>\d+) and (?P<wanted>\d+)x\d+\)",
            r"must be equal to input_size\. Expected (?P<wanted>\d+), got (?P<found>\d+)",
            r"normalized_shape=\[(?P<wanted>\d+)\].*size ?\[(?:\d+, )*(?P<found>\d+)\]",
            r"running_mean should contain (?P<found>\d+) elements not (?P<wanted>\d+)",
            r"embedding dimension of (?P<wanted>\d+), but got (?P<found>\d+)",
            r"to have (?P<wanted>\d+) channels, but got (?P<found>\d+) channels",
        ),
    )
)
# Two tensors that are added: either may be the one that the axis makes.
_UNEQUAL = re.compile(
    r"size of tensor a \((?P<one>\d+)\) must match the size of tensor b \((?P<other>\d+)\)"
)
# Strides and windows without padding leave out part of an axis, so the first guess can be off.
_MOST_GUESSES = 6
_LARGEST = 4096
_ROUND = (64, 32, 16, 8, 4, 2)
_AXES_OF_PICTURES = 4  # whose sides become features with other axes


class SolvedSizes:
    """Sizes of `axis` to try for one choice of shapes, from what did not fit so far.

    Flattened features grow with the axis's size to the power of how often a shape contains it: a
    side of a square image counts twice.
    """

    def __init__(self, inputs: Sequence[TensorSpec], axis: str) -> None:
        self._axis = axis
        self._power = max(spec.shape.count(axis) for spec in inputs)
        self._is_row = any(
            axis in spec.shape and len(spec.shape) < _AXES_OF_PICTURES for spec in inputs
        )
        # By the features that are wanted: sizes, and how many features each makes.
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
        seen[sizes[self._axis]] = float(found)
        if self._guesses == _MOST_GUESSES:
            return None
        guess = _solved(seen, wanted, self._power)
        near = (guess, guess + 1, guess - 1)
        size = next((each for each in near if 0 < each <= _LARGEST and each not in seen), None)
        self._guesses += 1
        return {**sizes, self._axis: size} if size is not None else None

    @property
    def is_moving(self) -> bool:
        """False once other sizes of the axis have made as many features as the first."""
        return all(len(seen) < 2 or len(set(seen.values())) > 1 for seen in self._seen.values())

    def _mismatch(self, size: int, reason: str) -> tuple[int, int] | None:
        """Return what there was and what was wanted, by a failed run's reason."""
        for number, read in enumerate(each.search(reason) for each in _MISMATCHES):
            if read is None:
                continue
            found = int(read["found"])
            if number and self._is_row and found == size:
                return None  # the axis itself is read as channels: not its size, its place is wrong
            return found, int(read["wanted"])
        if (read := _UNEQUAL.search(reason)) is None:
            return None
        one, other = int(read["one"]), int(read["other"])
        stays = bool(self._pairs) and one == self._pairs[-1][0]
        self._pairs.append((one, other))
        return (other, one) if stays or other == size else (one, other)


def _solved(seen: Mapping[int, float], wanted: float, power: int) -> int:
    """Return the size at which a curve through the two nearest points reaches `wanted`; in
    proportion to the only point if there is one. Features grow with a size, or up to its `power`:
    a side of a square image may count once if only one of the axes becomes features.
    """
    nearest = sorted(seen, key=lambda size: abs(seen[size] - wanted))
    size, found = nearest[0], seen[nearest[0]]
    if len(nearest) == 1 or seen[nearest[1]] == found:
        return round(size * (wanted / found) ** (1 / power)) if found else 0
    other = nearest[1]
    grown = math.log(max(seen[other], 1) / max(found, 1)) / math.log(other / size)
    root = 1 / min(max(round(grown), 1), power)
    slope = (other - size) / (seen[other] ** root - found**root)
    return round(size + (wanted**root - found**root) * slope)


def solved_in_turn(
    inputs: Sequence[TensorSpec],
    axes: Sequence[str],
    sizes: Mapping[str, int],
    run: Callable[[Mapping[str, int]], str | None],
) -> dict[str, int] | None:
    """Return sizes with which a model runs, after runs in which several axes did not fit: each
    mends what does not fit first, one after another. `run` returns why a run failed, or None.
    """
    at, reason = dict(sizes), run(sizes)
    left = list(axes)
    while reason is not None and left:
        mended = next(filter(None, (_mended(inputs, axis, at, run) for axis in left)), None)
        if mended is None:
            return None
        axis, at = mended
        left.remove(axis)
        reason = run(at)
    return at if reason is None else None


def rounder(
    sizes: Mapping[str, int], axes: Sequence[str], run: Callable[[Mapping[str, int]], str | None]
) -> dict[str, int]:
    """Return the roundest sizes, none larger, with which a model runs as with these: strides leave
    out part of an axis, and people have 80 bins where 83 give the same features.
    """
    found = dict(sizes)
    for axis in axes:
        for step in _ROUND:
            lower = found[axis] - found[axis] % step
            if lower == found[axis]:
                break
            if lower and run({**found, axis: lower}) is None:
                found[axis] = lower
                break
    return found


def _mended(
    inputs: Sequence[TensorSpec],
    axis: str,
    sizes: Mapping[str, int],
    run: Callable[[Mapping[str, int]], str | None],
) -> tuple[str, dict[str, int]] | None:
    """Return an axis with sizes at which something else does not fit, or everything does; None if
    the axis mends nothing.
    """
    solver = SolvedSizes(inputs, axis)
    reason = run(sizes) or ""
    kind = _kind(reason)
    at: dict[str, int] | None = dict(sizes)
    while kind and at is not None:
        at = solver.next_sizes(at, reason)
        if at is None or not solver.is_moving:
            return None
        failed = run(at)
        if failed is None or _kind(failed) != kind:
            return axis, at
        reason = failed
    return None


def at_odds(reason: str) -> bool:
    """Return True if a run failed for sizes that do not fit each other."""
    return _kind(reason) is not None


def _kind(reason: str) -> tuple[int, str] | None:
    """Return what of a failed run stays the same while an axis does not fit; None if no sizes are
    at odds.
    """
    for number, pattern in enumerate(_MISMATCHES):
        if (read := pattern.search(reason)) is not None:
            return number, read["wanted"]
    return (-1, "") if _UNEQUAL.search(reason) else None
