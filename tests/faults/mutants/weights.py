"""Mutations of weights."""

import random
from collections.abc import Callable

import numpy as np
import onnx
from onnx import numpy_helper

from faults.mutants.changes import (
    Mutation,
    NothingToMutateError,
    Shapes,
    all_names,
    float_weights,
    mutation,
    pick,
    readers_of,
)


def _weight(change: Callable[[np.ndarray, random.Random], np.ndarray], name: str) -> Callable:
    def mutate(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
        tensor = pick(chance, float_weights(model))
        before = numpy_helper.to_array(tensor)
        after = np.ascontiguousarray(change(before.copy(), chance)).astype(np.float32)
        if after.shape != before.shape or np.array_equal(before, after):
            raise NothingToMutateError
        tensor.CopyFrom(numpy_helper.from_array(after, tensor.name))
        return mutation(name, [tensor.name], "weight", "exchanged", "order")

    return mutate


def _one_row(values: np.ndarray, chance: random.Random) -> np.ndarray:
    values[chance.randrange(len(values))] *= 1.5
    return values


def _with_nan(values: np.ndarray, chance: random.Random) -> np.ndarray:
    values.flat[chance.randrange(values.size)] = np.nan
    return values


def _permuted(values: np.ndarray, chance: random.Random) -> np.ndarray:
    order = list(range(len(values)))
    chance.shuffle(order)
    return values[order]


def _transposed(values: np.ndarray, chance: random.Random) -> np.ndarray:
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise NothingToMutateError
    return values.T


def _noisy(values: np.ndarray, chance: random.Random) -> np.ndarray:
    noise = np.random.default_rng(chance.randrange(1 << 30)).standard_normal(values.shape)
    return values + 0.02 * np.std(values) * noise


def _bfloat16(values: np.ndarray, chance: random.Random) -> np.ndarray:
    return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32)


def exchanged_weights(model: onnx.ModelProto, shapes: Shapes, chance: random.Random) -> Mutation:
    tensors = float_weights(model)
    pairs = [
        (a, b)
        for place, a in enumerate(tensors)
        for b in tensors[place + 1 :]
        if list(a.dims) == list(b.dims) and a.raw_data != b.raw_data
    ]
    first, second = pick(chance, pairs)
    first.raw_data, second.raw_data = second.raw_data, first.raw_data
    readers = [n for t in (first, second) for r in readers_of(model, t.name) for n in all_names(r)]
    names = [first.name, second.name, *readers]
    return mutation("exchanged weights", names, "exchanged", "weight", "operands")


WEIGHT_MUTATIONS: tuple[Callable[[onnx.ModelProto, Shapes, random.Random], Mutation], ...] = (
    _weight(lambda v, c: v * np.float32(c.choice([0.5, 1.1, 3.0])), "scaled weight"),
    _weight(lambda v, _: -v, "negated weight"),
    _weight(lambda v, _: v.astype(np.float16).astype(np.float32), "weight through float16"),
    _weight(_bfloat16, "weight through bfloat16"),
    _weight(_one_row, "one row"),
    _weight(_with_nan, "NaN in a weight"),
    _weight(_permuted, "rows in a different order"),
    _weight(_transposed, "transposed weight"),
    _weight(_noisy, "noise on a weight"),
    _weight(lambda v, _: np.zeros_like(v), "weight of zeros"),
    exchanged_weights,
)
