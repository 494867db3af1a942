"""Rotary position embeddings: which elements are turned, and by which angles, read from values."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.search_types.divergence_place import EQUAL
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite, pinned
from convkit.worker.cause.search_types.search_results import Kind

# Angles, and numbers derived from them, that differ by less are the same.
_NEAR = 1e-3
_WORDS = {
    "halves": "elements half of the width apart (GPT-NeoX, Llama)",
    "neighbors": "neighboring elements (GPT-J, RoFormer)",
}


@dataclasses.dataclass(frozen=True)
class _Turn:
    """A rotation of pairs of the last axis's first `width` elements: `angles` has one for each
    position and pair, and is zero if nothing is turned.
    """

    layout: str
    width: int
    axis: int
    angles: np.ndarray

    @property
    def is_none(self) -> bool:
        return bool((np.abs(self.angles) < _NEAR).all())


def rotary(region: Region) -> Iterator[Rewrite]:
    """Turn a value as the original does, if the graph turns it in another way or not at all.

    Keys and queries are looked at by themselves, so grouped heads make no difference.
    """
    found, expected = region.found(), region.expected
    if found is None or expected.dtype != np.float32:
        return
    for name, given in region.feeds.items():
        if given.shape != expected.shape or given.dtype != np.float32 or given.ndim < 3:
            continue
        should = _turn(given, expected)
        own = None if should is None else _turn(given, found, None if should.is_none else should)
        if should is None or own is None:
            continue
        difference = _difference(own, should, name)
        if difference is not None:
            kind, text = difference
            values = _turned(given, should).astype(expected.dtype)
            yield Rewrite(kind, region.target, text, pinned(region.graph, region.target, values))


def _turn(given: np.ndarray, made: np.ndarray, like: _Turn | None = None) -> _Turn | None:
    """Return the rotation that leads from one value to another; None if there is none.

    Of several, the one with the layout and axis of `like` is preferred.
    """
    size = given.shape[-1]
    widths = [w for w in dict.fromkeys((size, size // 2, size // 4)) if w >= 2 and w % 2 == 0]
    options = [
        (layout, width, axis)
        for layout in _WORDS
        for width in widths
        for axis in reversed(range(1, given.ndim - 1))
    ]
    if like is not None:
        options.sort(key=lambda each: each != (like.layout, like.width, like.axis))
    for layout, width, axis in options:
        turn = _Turn(layout, width, axis, _angles(given, made, layout, width, axis))
        if relative_error(_turned(given, turn), made.astype(np.float64)) <= EQUAL:
            return turn
    return None


def _angles(given: np.ndarray, made: np.ndarray, layout: str, width: int, axis: int) -> np.ndarray:
    """Return the angles, positions by pairs, that bring each pair nearest to what was made."""
    before, after = _pairs(given[..., :width], layout), _pairs(made[..., :width], layout)
    others = tuple(each for each in range(given.ndim - 1) if each != axis)
    return np.asarray(np.angle((after * before.conj()).sum(others)))


def _pairs(values: np.ndarray, layout: str) -> np.ndarray:
    """Return pairs of elements of the last axis as complex numbers."""
    wide = values.astype(np.float64)
    if layout == "neighbors":
        return np.asarray(wide[..., ::2] + 1j * wide[..., 1::2])
    half = wide.shape[-1] // 2
    return np.asarray(wide[..., :half] + 1j * wide[..., half:])


def _turned(given: np.ndarray, turn: _Turn) -> np.ndarray:
    shape = [1] * given.ndim
    shape[turn.axis], shape[-1] = turn.angles.shape
    pairs = _pairs(given[..., : turn.width], turn.layout) * np.exp(1j * turn.angles.reshape(shape))
    made = given.astype(np.float64)
    if turn.layout == "neighbors":
        made[..., : turn.width : 2], made[..., 1 : turn.width : 2] = pairs.real, pairs.imag
    else:
        half = turn.width // 2
        made[..., :half], made[..., half : turn.width] = pairs.real, pairs.imag
    return made


def _difference(own: _Turn, should: _Turn, name: str) -> tuple[Kind, str] | None:
    """Return the kind of a cause and its description; None if both turn alike."""
    if own.is_none and should.is_none:
        return None
    if own.is_none:
        return "missing", f"its output lacks the rotary embedding of {name}"
    if should.is_none:
        return "extra", f"the rotary embedding of {name} should not be there"
    if own.layout != should.layout:
        now, right = _WORDS[own.layout], _WORDS[should.layout]
        return (
            "order",
            f"the rotary embedding turns pairs of {now} and should turn pairs of {right}",
        )
    turns = "the rotary embedding turns"
    if own.width != should.width:
        return "constant", f"{turns} {own.width} elements and should turn {should.width}"
    if own.axis != should.axis:
        positions = f"along axis {own.axis} and should turn them along axis {should.axis}"
        return "attribute", f"{turns} elements {positions}"
    if _near(own.angles, should.angles):
        return None
    return "constant", f"the rotary embedding {_by_angles(own, should)}"


def _by_angles(own: _Turn, should: _Turn) -> str:
    """Describe how the angles of one rotation differ from another's."""
    if _near(own.angles, -should.angles):
        return "turns in the opposite direction"
    if own.angles.shape[0] < 2:
        return "turns by different angles"
    rates, expected = _rates(own.angles), _rates(should.angles)
    if _near(rates, expected):
        # The first pair turns fastest, so its angle tells the position best.
        first, wanted = (t.angles[0, 0] / expected[0] for t in (own, should))
        return f"counts positions from {first:.4g} and should count from {wanted:.4g}"
    with np.errstate(all="ignore"):
        ratio = rates / expected
    if _near(ratio, np.full_like(ratio, ratio[0])):
        return f"turns {ratio[0]:.4g} times as far for each position as it should"
    bases = _base(rates), _base(expected)
    if None not in bases:
        return f"has the base {bases[0]:.4g} (theta) and should have {bases[1]:.4g}"
    return "turns by different angles"


def _rates(angles: np.ndarray) -> np.ndarray:
    """Return each pair's angle from one position to the next."""
    return np.asarray(np.angle(np.exp(1j * (angles[1] - angles[0]))))


def _base(rates: np.ndarray) -> float | None:
    """Return the base whose powers the rates are, as in base ** (-i / pairs); None if they are
    not.
    """
    if rates.size < 2 or not (rates > 0).all():
        return None
    logs = np.log(rates)
    steps = np.diff(logs)
    if not _near(steps, np.full_like(steps, steps[0])):
        return None
    return float(np.exp(-steps[0] * rates.size))


def _near(first: np.ndarray, second: np.ndarray) -> bool:
    """Say whether angles, or ratios of them, are the same but for whole turns."""
    return bool((np.abs(np.angle(np.exp(1j * (first - second)))) < _NEAR).all())
