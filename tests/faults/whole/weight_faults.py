"""What converters do to weights: each returns a wrong one of the same shape."""

import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from faults.mutants.changes import NothingToMutateError

Weight = TypeVar("Weight", bound=tuple[Any, ...])
ChangeWeight = Callable[[np.ndarray, random.Random], np.ndarray]


def changed_weight(values: np.ndarray, change: ChangeWeight, chance: random.Random) -> np.ndarray:
    """Return a wrong weight; raises NothingToMutateError if it would be the same one."""
    after = np.ascontiguousarray(change(values.copy(), chance)).astype(np.float32)
    if after.shape != values.shape or np.array_equal(values, after):
        raise NothingToMutateError
    return after


def exchangeable(weights: Sequence[Weight]) -> list[tuple[Weight, Weight]]:
    """Return the pairs of different weights of one shape; a weight's values come last."""
    return [
        (one, other)
        for one, other in itertools.combinations(weights, 2)
        if one[-1].shape == other[-1].shape and not np.array_equal(one[-1], other[-1])
    ]


def _one_row(values: np.ndarray, chance: random.Random) -> np.ndarray:
    values[chance.randrange(len(values))] *= 1.5
    return values


def _transposed(values: np.ndarray, chance: random.Random) -> np.ndarray:
    if values.ndim < 2 or values.shape[-1] != values.shape[-2]:
        raise NothingToMutateError
    return values.swapaxes(-1, -2)


def _noisy(values: np.ndarray, chance: random.Random) -> np.ndarray:
    noise = np.random.default_rng(chance.randrange(1 << 30)).standard_normal(values.shape)
    return values + 0.05 * np.std(values) * noise


WEIGHT_FAULTS: dict[str, ChangeWeight] = {
    "scaled weight": lambda v, c: v * np.float32(c.choice([0.5, 1.1, 3.0])),
    "negated weight": lambda v, _: -v,
    "rows shifted": lambda v, _: np.roll(v, 1, 0),
    "one row": _one_row,
    "transposed weight": _transposed,
    "noise on a weight": _noisy,
    "weight of zeros": lambda v, _: np.zeros_like(v),
}
