"""How one weight array was derived from another: transposed, rounded, scaled, some rows changed."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

# Two weights computed by different arithmetic (such as a folded batch norm) agree to this fraction
# of their RMS.
NEAR = 3e-6
# Below this correlation, two tensors are unrelated.
_RELATED = 0.5
# Standard deviations: one in a thousand, one-sided.
_UNLIKELY = 3.1
_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class Likeness:
    """How a weight differs from the original's: a machine-readable word, and a description with
    figures.
    """

    kind: str
    text: str


def how_different(found: np.ndarray, original: np.ndarray) -> Likeness | None:
    """Describe how `found` differs from `original`, both of one shape; None if it does not.

    The first explanation that holds for every element wins; each is verified numerically.
    """
    if np.array_equal(found, original):
        return None
    own, other = found.astype(np.float64), original.astype(np.float64)
    if not np.isfinite(own).all() and np.isfinite(other).all():
        count = int((~np.isfinite(own)).sum())
        return Likeness("not-finite", f"{count} of {own.size} elements are NaN or infinite")
    if np.array_equal(own, other, equal_nan=True) or is_near(own, other):
        return None
    with np.errstate(all="ignore"):
        for explain in _EXPLANATIONS:
            if (likeness := explain(own, other, found)) is not None:
                return likeness
    return _different(own, other)


def _rounded(own: np.ndarray, other: np.ndarray, found: np.ndarray) -> Likeness | None:
    single = other.astype(np.float32)
    if np.array_equal(own, single.astype(np.float16).astype(np.float64)):
        return Likeness("rounded", "its values were rounded through float16")
    if np.array_equal(own, _through_bfloat16(single).astype(np.float64)):
        return Likeness("rounded", "its values were rounded through bfloat16")
    if np.array_equal(own, single.astype(np.float64)) and found.dtype.itemsize < 8:
        return Likeness("rounded", "its values were rounded to float32")
    return None


def _through_bfloat16(values: np.ndarray) -> np.ndarray:
    """Round float32 values to bfloat16, to nearest, ties to even."""
    bits = values.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (rounded & np.uint32(0xFFFF0000)).view(np.float32)


def _scaled(own: np.ndarray, other: np.ndarray, found: np.ndarray) -> Likeness | None:  # noqa: ARG001
    power = float((other * other).sum())
    if power == 0:
        return None
    if not own.any():
        return Likeness("zero", "all its values are zero")
    factor = float((own * other).sum()) / power
    if factor and is_near(own, factor * other) and abs(factor - 1) > NEAR:
        text = "its sign is reversed" if is_near(own, -other) else f"it is scaled by {factor:.6g}"
        return Likeness("scaled", text)
    offset = float((own - other).mean())
    if offset and own.size > 1 and is_near(own, other + offset):
        return Likeness("shifted", f"{offset:.6g} was added to all its values")
    return None


def _some_rows(own: np.ndarray, other: np.ndarray, found: np.ndarray) -> Likeness | None:  # noqa: ARG001
    """Detect a change confined to a few rows along one axis."""
    differs = np.abs(own - other) > NEAR * float(np.sqrt((other * other).mean()))
    for axis in range(own.ndim):
        if own.ndim > 1 and own.shape[axis] < 3:
            continue
        rows = np.flatnonzero(differs.any(axis=tuple(i for i in range(own.ndim) if i != axis)))
        if len(rows) * 2 > own.shape[axis]:
            continue
        mine, theirs = np.take(own, rows, axis), np.take(other, rows, axis)
        power = float((theirs * theirs).sum())
        factor = float((mine * theirs).sum()) / power if power else 0.0
        how = "differ"
        if not mine.any():
            how = "are zero"
        elif factor and is_near(mine, factor * theirs):
            how = f"are scaled by {factor:.6g}"
        elif np.array_equal(np.sort(mine, axis), np.sort(theirs, axis)):
            how = "are swapped with each other"
        shown = ", ".join(map(str, rows[:_SHOWN])) + (", ..." if len(rows) > _SHOWN else "")
        what = "elements" if own.ndim == 1 else f"rows along axis {axis}"
        return Likeness(
            "some-rows",
            f"{len(rows)} of {own.shape[axis]} {what} {how} ({shown}); others are equal",
        )
    return None


def _permuted(own: np.ndarray, other: np.ndarray, found: np.ndarray) -> Likeness | None:  # noqa: ARG001
    """Detect rows in a different order along one axis, and swapped axes of equal size."""
    for axis in range(own.ndim):
        mine, theirs = _rows(own, axis), _rows(other, axis)
        # Folding a norm changes the last bits: rows are considered equal to four digits of the RMS.
        unit = 1e-4 * float(np.sqrt((other * other).mean())) or 1.0
        mine, theirs = np.round(mine / unit) + 0.0, np.round(theirs / unit) + 0.0
        if len(mine) < 2:
            continue
        order = {row.tobytes(): place for place, row in enumerate(theirs)}
        places = [order.get(row.tobytes(), -1) for row in mine]
        if -1 in places or len(set(places)) != len(places) or places == sorted(places):
            continue
        return Likeness("permuted", f"along axis {axis} {_order(places)}")
    if own.ndim > 1:
        for axes in permutations_of(own.ndim):
            moved = other.transpose(axes)
            if moved.shape == own.shape and axes != tuple(range(own.ndim)) and is_near(own, moved):
                return Likeness("transposed", f"its axes are permuted to {list(axes)}")
    return None


def _order(places: list[int]) -> str:
    size = len(places)
    if places == list(range(size))[::-1]:
        return "the order is reversed"
    if (shift := places[0]) and places == [(shift + place) % size for place in range(size)]:
        return f"everything is shifted by {min(shift, shift - size, key=abs)}"
    moved = [place for place in range(size) if places[place] != place]
    shown = ", ".join(map(str, moved[:_SHOWN])) + (", ..." if len(moved) > _SHOWN else "")
    return f"{len(moved)} of {size} rows are in a different order ({shown})"


def _clipped(own: np.ndarray, other: np.ndarray, found: np.ndarray) -> Likeness | None:  # noqa: ARG001
    low, high = own.min(), own.max()
    if low < high and is_near(own, other.clip(low, high)) and not is_near(own, other):
        return Likeness("clipped", f"its values are clipped to [{low:.6g}, {high:.6g}]")
    return None


def _rescaled_rows(own: np.ndarray, other: np.ndarray, found: np.ndarray) -> Likeness | None:  # noqa: ARG001
    """Detect a separate factor for every row along one axis: a norm that was folded or left out."""
    if own.ndim < 2:
        return None
    for axis in range(own.ndim):
        others = tuple(i for i in range(own.ndim) if i != axis)
        power = (other * other).sum(axis=others, keepdims=True)
        factors = (own * other).sum(axis=others, keepdims=True) / np.where(power == 0, 1, power)
        if is_near(own, factors * other) and not is_near(own, other):
            return Likeness(
                "rescaled",
                f"each row along axis {axis} has its own factor, from {factors.min():.6g} to"
                f" {factors.max():.6g}",
            )
    return None


_EXPLANATIONS: tuple[Callable[[np.ndarray, np.ndarray, np.ndarray], Likeness | None], ...] = (
    _rounded,
    _scaled,
    _some_rows,
    _permuted,
    _clipped,
    _rescaled_rows,
)


def _different(own: np.ndarray, other: np.ndarray) -> Likeness:
    error = np.abs(own - other)
    worst = np.unravel_index(int(error.argmax()), error.shape)
    count = int((own != other).sum())
    text = (
        f"{count} of {own.size} elements differ, by {error.max():.3g} at most (at"
        f" {[int(each) for each in worst]}: {own[worst]:.6g}, original {other[worst]:.6g})"
    )
    if not resembles(own, other):
        return Likeness("other", f"its values are unrelated to the original's: {text}")
    return Likeness("noise", text)


def resembles(first: np.ndarray, second: np.ndarray) -> bool:
    """Return True if two tensors of one shape are versions of each other: correlation above 0.5,
    and of few elements so much more that chance is no explanation.

    Fisher's z-transform: of n pairs of unrelated values, atanh(r) has a standard deviation of
    1 / sqrt(n - 3).
    """
    one, two = first.ravel() - first.mean(), second.ravel() - second.mean()
    power = float(np.sqrt((one @ one) * (two @ two)))
    if not power > 0:
        return False
    least = max(_RELATED, float(np.tanh(_UNLIKELY / np.sqrt(max(1, one.size - 3)))))
    return float(one @ two) / power > least


def is_near(found: np.ndarray, expected: np.ndarray, within: float = NEAR) -> bool:
    """Return True if no element is off by more than `within` of the expected values' RMS."""
    rms = float(np.sqrt((expected * expected).mean())) if expected.size else 0.0
    return bool(found.shape == expected.shape and (np.abs(found - expected) <= within * rms).all())


def _rows(values: np.ndarray, axis: int) -> np.ndarray:
    return np.ascontiguousarray(np.moveaxis(values, axis, 0).reshape(values.shape[axis], -1))


def permutations_of(rank: int) -> Iterator[tuple[int, ...]]:
    """Yield the permutations of a tensor's axes, identity first."""
    import itertools

    return itertools.permutations(range(rank))
