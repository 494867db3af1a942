"""Outputs that are places of scores: of the largest, of the best k, in order. Where scores are
equal, each of their places is right, in any program, and so is what follows from it.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from convkit.protocol.contract import TensorSpec
from convkit.protocol.messages import LowType
from convkit.protocol.messages.case_tensors import Side
from convkit.worker.cases.case_files import tensor_file, write_tensors

# Scores this near are equal but for rounding: in units in the last place of float32, 2^-23, at the
# largest score of their row. Two kernels sum up a row of a few thousand products so far apart.
_UNITS, _UNIT = 16, 2.0**-23
# The same for scores that come from kernels: how far two may be apart, in parts of the largest.
NEAR = 2 * _UNITS * _UNIT
# The same in a type with coarser steps (2^-11, 2^-8, 2^-8), of which as many add up: a model in it
# does not tell scores apart that are nearer. In int4 none is certain.
NEAR_IN: Mapping[LowType, float] = {
    "float16": 2 * _UNITS * 2.0**-11,
    "bfloat16": 2 * _UNITS * 2.0**-8,
    "int8": 2 * _UNITS * 2.0**-8,
}
_OPEN_IN: Mapping[LowType, Side] = {
    "float16": "open-float16",
    "bfloat16": "open-bfloat16",
    "int8": "open-int8",
}
# Of an output's largest magnitude: what differs by less is rounding.
ROUNDED = 1e-4

Arrays = Mapping[str, np.ndarray]
# Of each output, what else is right than the original's values: which elements may be any number
# (bool, in the output's shape), and other values of each element (of the output's type, along one
# more axis, the last).
Open = Mapping[str, tuple[np.ndarray, ...]]


@dataclasses.dataclass(frozen=True)
class ScoredPlaces:
    """The scores that places were chosen from, [rows, places], and of which row each element of the
    output is a place, in the output's shape.
    """

    scores: np.ndarray
    rows: np.ndarray

    def has_equals(self, chosen: np.ndarray) -> np.ndarray:
        """Say of which chosen places another place has an equal score, in the output's shape."""
        order = np.argsort(self.scores, axis=-1)
        ranked = np.take_along_axis(self.scores, order, -1).astype(np.float64)
        alike = _are_equal(ranked[:, :-1], ranked[:, 1:], self._near[:, None])
        equal = np.zeros(ranked.shape, dtype=bool)
        equal[:, 1:] |= alike
        equal[:, :-1] |= alike
        unranked = np.empty_like(equal)
        np.put_along_axis(unranked, order, equal, -1)
        return np.asarray(unranked[self.rows, chosen])

    def are_near(self, near: float) -> bool:
        """Return whether two scores of a row are as near as that, in parts of its largest."""
        ranked = np.sort(self.scores, axis=-1)
        apart = (near * self._largest)[:, None]
        return self._are_fractions and bool(_are_equal(ranked[:, :-1], ranked[:, 1:], apart).any())

    def settled(self, reference: np.ndarray, candidate: np.ndarray) -> np.ndarray:
        """Return a candidate's places, with the reference's where both have equal scores and the
        candidate names no place of a row twice; unchanged if its shape or type differs.
        """
        if candidate.shape != reference.shape or candidate.dtype.kind not in "iu":
            return candidate
        legal = (candidate >= 0) & (candidate < self.scores.shape[-1])
        legal &= ~_is_repeated(self.rows, candidate)
        places = np.where(legal, candidate, reference)
        one, other = (self.scores[self.rows, each] for each in (reference, places))
        equal = _are_equal(one, other, self._near[self.rows])
        return np.where(legal & equal, reference, candidate).astype(candidate.dtype)

    @property
    def _near(self) -> np.ndarray:
        """How far scores of each row are apart at most if they are equal: [rows]."""
        return _UNITS * _UNIT * self._largest * self._are_fractions

    @property
    def _are_fractions(self) -> bool:
        return self.scores.dtype.kind == "f"

    @property
    def _largest(self) -> np.ndarray:
        """The largest finite magnitude of each row: [rows]."""
        finite = np.where(np.isfinite(self.scores), np.abs(self.scores), 0.0)
        return np.asarray(finite.max(axis=-1).astype(np.float64))


def _are_equal(one: np.ndarray, other: np.ndarray, near: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):  # infinity less infinity
        apart = np.abs(one.astype(np.float64) - other.astype(np.float64))
    return np.asarray((one == other) | (apart <= near))


def _is_repeated(rows: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Say which elements name a place that another element of the same row names."""
    pairs = np.stack([rows.ravel(), places.ravel()], axis=-1)
    _, which, counts = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    return np.asarray((counts[which.reshape(-1)] > 1).reshape(places.shape))


def write_scores(root: Path, case: str, scored: Mapping[str, ScoredPlaces]) -> None:
    """Write the scores of a case's outputs."""
    write_tensors(root, case, "scores", {name: each.scores for name, each in scored.items()})
    write_tensors(root, case, "score-rows", {name: each.rows for name, each in scored.items()})


def read_scores(root: Path, case: str, outputs: tuple[TensorSpec, ...]) -> dict[str, ScoredPlaces]:
    """Return the scores of outputs that have equal ones in a case."""
    found = {}
    for spec in outputs:
        files = [tensor_file(root, case, side, spec.name) for side in ("scores", "score-rows")]
        if all(file.exists() for file in files):
            found[spec.name] = ScoredPlaces(*(np.load(file, mmap_mode="r") for file in files))
    return found


def write_open(root: Path, case: str, are_open: Arrays, low: LowType | None = None) -> None:
    """Write what else is right for elements of a case's outputs (see `Open`) because they depend on
    the order of scores that are equal, or that a type does not tell apart.
    """
    write_tensors(root, case, _side(low), are_open)


def read_open(
    root: Path, case: str, outputs: tuple[TensorSpec, ...], low: LowType | None = None
) -> Open | None:
    """Return what else is right for elements of a case's outputs, as they depend on the order of
    scores that are equal, or that a type does not tell apart; None if no element does.
    """
    found: dict[str, tuple[np.ndarray, ...]] = {}
    for side in dict.fromkeys((_side(None), _side(low))):
        for spec in outputs:
            if (file := tensor_file(root, case, side, spec.name)).exists():
                found[spec.name] = (*found.get(spec.name, ()), np.load(file, mmap_mode="r"))
    return found or None


def _side(low: LowType | None) -> Side:
    return _OPEN_IN.get(low, "open") if low is not None else "open"


def with_open(outputs: Arrays, expected: Arrays, are_open: Open | None) -> Arrays:
    """Return a model's outputs, with the original's elements where these depend on the order of
    equal scores and the model's are as right.
    """
    if are_open is None:
        return outputs
    return {
        name: np.where(_are_right(values, are_open[name]), expected[name], values).astype(
            values.dtype
        )
        if name in are_open and name in expected and values.shape == expected[name].shape
        else values
        for name, values in outputs.items()
    }


def _are_right(values: np.ndarray, ways: tuple[np.ndarray, ...]) -> np.ndarray:
    """Say which elements are numbers where any is right, or one of those that are."""
    found = np.zeros(values.shape, dtype=bool)
    for way in ways:
        is_any = way.dtype.kind == "b" and way.ndim == values.ndim
        found |= way & np.isfinite(values) if is_any else (way == values[..., None]).any(-1)
    return found


def differing(
    one: np.ndarray, other: np.ndarray, *, like: np.ndarray | None = None, usual: float = 0.0
) -> np.ndarray:
    """Return which elements differ by more than rounding of values such as those of `like`, by
    default the first, and of the `usual` size at least; all of them for different shapes.
    """
    if one.shape != other.shape:
        return np.ones(one.shape, dtype=bool)
    if one.dtype.kind != "f":
        return np.asarray(one != other)
    left, right = one.astype(np.float64), other.astype(np.float64)
    sized = left if like is None else like.astype(np.float64)
    scale = float(np.abs(sized[np.isfinite(sized)]).max(initial=usual))
    with np.errstate(invalid="ignore"):  # infinity less infinity
        near = np.abs(left - right) <= ROUNDED * scale
    return ~(near | (left == right) | (np.isnan(left) & np.isnan(right)))


def with_settled(
    outputs: Mapping[str, np.ndarray],
    expected: Mapping[str, np.ndarray],
    scored: Mapping[str, ScoredPlaces],
) -> dict[str, np.ndarray]:
    """Return a model's outputs, with the original's places among equal scores."""
    return {
        name: scored[name].settled(expected[name], values)
        if name in scored and name in expected
        else values
        for name, values in outputs.items()
    }
