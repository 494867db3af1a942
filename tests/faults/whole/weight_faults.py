"""What converters do to weights: each returns a wrong one of the same shape."""

import random
from collections.abc import Callable

import numpy as np

from faults.mutants.changes import NothingToMutateError

ChangeWeight = Callable[[np.ndarray, random.Random], np.ndarray]


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
