"""The orders of axes in which a graph may hold a weight of the original."""

import dataclasses
from collections.abc import Collection, Iterator, Mapping
from functools import partial

import numpy as np

from convkit.worker.cause.matching.weight_derivation import permutations_of
from convkit.worker.cause.weights.fused_weights import Derived

State = Mapping[str, np.ndarray]

# Elements. Scalars and tiny vectors are equal to something by chance.
SMALLEST = 4


def layouts_of(array: np.ndarray, wanted: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield views of an array in each order of axes that yields a shape, ignoring axes of size
    one.
    """
    sizes = tuple(size for size in wanted if size != 1)
    plain = array if array.shape == sizes else array.squeeze()
    if sorted(plain.shape) != sorted(sizes) or len(sizes) > 5:
        return
    for axes in permutations_of(plain.ndim):
        if tuple(plain.shape[axis] for axis in axes) == sizes:
            yield plain.transpose(axes).reshape(wanted)


def laid_out(derived: Derived, wanted: Collection[tuple[int, ...]]) -> Iterator[Derived]:
    """Yield a derived tensor in each order of axes that has a wanted shape."""
    values = derived.values
    for shape in wanted:
        for moved in layouts_of(values, shape) if values.size >= SMALLEST else ():
            yield dataclasses.replace(derived, shape=shape, build=partial(np.asarray, moved))


def held_by(values: np.ndarray, state: State) -> str | None:
    """Return the entry of a state dict that has exactly these values, in any order of axes."""
    for name, array in state.items():
        alike = array.size == values.size and array.dtype == values.dtype
        if alike and any(
            np.array_equal(moved, values) for moved in layouts_of(array, values.shape)
        ):
            return name
    return None
