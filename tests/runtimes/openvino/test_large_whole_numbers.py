"""OpenVINO divides and compares whole numbers in float32; its sums and products are int32's."""

import numpy as np
import openvino
import openvino.opset13 as ops
import pytest

from convkit.runtimes.openvino.large_whole_numbers import keep_whole_numbers_exact

RANDOM = np.random.default_rng(3)
LARGEST = 2**31 - 1


def pairs() -> tuple[np.ndarray, np.ndarray]:
    """Any numbers, small divisors of large ones, and numbers next to each other."""
    some = RANDOM.integers(-LARGEST, LARGEST, 4000)
    one = np.concatenate([some, RANDOM.integers(-1000, 1000, 1000), some, some])
    other = np.concatenate(
        [
            RANDOM.integers(-LARGEST, LARGEST, 4000),
            RANDOM.integers(-50, 50, 1000),
            RANDOM.integers(1, 100_000, 4000),
            np.clip(some + RANDOM.integers(-2, 3, 4000), -LARGEST, LARGEST),
        ]
    )
    return one, np.where(other == 0, 7, other)


ONE, OTHER = pairs()
EXPECTED = {
    "divide": np.trunc(ONE.astype(np.longdouble) / OTHER).astype(np.int64),
    "equal": ONE == OTHER,
    "floor_mod": ONE % OTHER,
    "greater": ONE > OTHER,
    "greater_equal": ONE >= OTHER,
    "less": ONE < OTHER,
    "less_equal": ONE <= OTHER,
    "mod": np.fmod(ONE, OTHER),
    "not_equal": ONE != OTHER,
}


def computed(model: openvino.Model, *feeds: np.ndarray) -> np.ndarray:
    compiled = openvino.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return np.asarray(next(iter(compiled(list(feeds)).values())))


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("name", EXPECTED)
def test_every_number_of_int32_is_exact(name: str, dtype: type) -> None:
    def made() -> openvino.Model:
        one, other = ops.parameter([-1], dtype), ops.parameter([-1], dtype)
        found = getattr(ops, name)(one, other)
        found.output(0).set_names({"y"})
        return openvino.Model([found], [one, other])

    feeds = ONE.astype(dtype), OTHER.astype(dtype)
    assert not np.array_equal(computed(made(), *feeds), EXPECTED[name])
    model = made()
    assert keep_whole_numbers_exact(model) == 1
    assert np.array_equal(computed(model, *feeds), EXPECTED[name])
    assert model.output("y").get_any_name() == "y"


TABLE = RANDOM.integers(-LARGEST, LARGEST, (16, 32, 4))


@pytest.mark.parametrize(
    ("name", "values", "axes", "keeps", "expected"),
    [
        ("reduce_max", TABLE, [1], False, TABLE.max(1)),
        ("reduce_min", TABLE, [0, 2], True, TABLE.min((0, 2), keepdims=True)),
        ("reduce_max", TABLE, [-1], True, TABLE.max(-1, keepdims=True)),
        ("reduce_sum", TABLE // 64, [1], False, (TABLE // 64).sum(1)),
        ("reduce_sum", TABLE // 1024, [0, 1], True, (TABLE // 1024).sum((0, 1), keepdims=True)),
    ],
)
def test_reductions_are_exact(
    name: str, values: np.ndarray, axes: list[int], keeps: bool, expected: np.ndarray
) -> None:
    given = ops.parameter([-1, 32, 4], np.int64)
    model = openvino.Model([getattr(ops, name)(given, np.array(axes), keeps)], [given])
    assert not np.array_equal(computed(model, values), expected)
    assert keep_whole_numbers_exact(model) == 1
    found = computed(model, values)
    assert found.shape == expected.shape
    assert np.array_equal(found, expected)


def test_what_is_small_stays_as_it_is() -> None:
    mask, ids = ops.parameter([-1, 8], bool), ops.parameter([-1, 8], np.int64)
    counts = ops.reduce_sum(ops.convert(mask, "i64"), np.int64(1))
    large = ops.greater(ids, ops.constant(np.int64(5)))
    sizes = ops.divide(ops.shape_of(ids), ops.constant(np.int64(2)))
    model = openvino.Model([counts, large, sizes], [mask, ids])
    assert keep_whole_numbers_exact(model) == 0


def test_reductions_along_computed_axes_stay_as_they_are() -> None:
    values, axes = ops.parameter([-1, 8], np.int64), ops.parameter([1], np.int64)
    ranks = ops.parameter(openvino.PartialShape.dynamic(), np.int64)
    reduced = [ops.reduce_sum(values, axes), ops.reduce_max(ranks, ops.constant(np.int64([0])))]
    model = openvino.Model(reduced, [values, axes, ranks])
    assert keep_whole_numbers_exact(model) == 0
