"""Binding, rounding, shapes, memory, and what the trace says."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from mil_programs import apply, ct, mb, mil_program, run, run_one, save_program, small_program

from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.mil.program import load_program, program_of
from convkit.worker.mil.program_errors import (
    EvaluationError,
    FeedMismatchError,
    UnsupportedOperation,
)

PAIR = {"a": ((2,), "fp32"), "b": ((2,), "fp32")}
ONE, TWO = np.ones(2, np.float32), np.full(2, 2, np.float32)


def difference() -> Any:
    return small_program(lambda a, b: mb.sub(x=a, y=b), PAIR)


def test_feeds_are_bound_by_name() -> None:
    np.testing.assert_array_equal(run_one(difference(), b=ONE, a=TWO), ONE)


@pytest.mark.parametrize(
    ("feeds", "message"),
    [
        ({"a": ONE}, "no feed for the input b"),
        ({"a": ONE, "b": ONE, "c": ONE}, "no input 'c'; the program's are a, b"),
        ({"a": ONE, "b": ONE.astype(np.float64)}, "the input b takes float32, not float64"),
        ({"a": ONE, "b": ONE.astype(np.int32)}, "the input b takes float32, not int32"),
        (
            {"a": ONE, "b": np.ones(3, np.float32)},
            r"the input b does not take shape \[3\]: expected \[2\]",
        ),
        ({"a": ONE, "b": np.ones((1, 2), np.float32)}, r"the input b does not take shape \[1, 2\]"),
    ],
)
def test_a_feed_that_does_not_fit(feeds: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(FeedMismatchError, match=message):
        Evaluator(difference()).run(feeds)


def test_feeds_that_torch_cannot_share() -> None:
    backwards = np.array([1, 2, 3, 4], np.float32)[::-2]
    fixed = np.array([1, 1], np.float32)
    fixed.flags.writeable = False
    np.testing.assert_array_equal(run_one(difference(), a=backwards, b=fixed), [3, 1])


def test_outputs_are_their_own_memory() -> None:
    feed = ONE.copy()
    output = run_one(small_program(lambda a: mb.identity(x=a), {"a": ((2,), "fp32")}), a=feed)
    output[0] = 7
    assert feed[0] == 1


def test_an_unknown_operation_is_named() -> None:
    program = small_program(
        lambda **_: mb.random_normal(shape=[2], mean=0.0, stddev=1.0), {"a": ((2,), "fp32")}
    )
    with pytest.raises(UnsupportedOperation, match="no kernel for random_normal") as caught:
        Evaluator(program)
    assert caught.value.operations == ("random_normal",)
    drawn = next(each for each in program.function.operations if each.op_type == "random_normal")
    with pytest.raises(UnsupportedOperation, match=r"random_normal \(module decoder\.noise\)"):
        Evaluator(program, {drawn.outputs[0].name: "decoder.noise"})


def test_an_unknown_operation_in_a_branch_is_named() -> None:
    def body(a: Any) -> Any:
        drawn = lambda: mb.random_normal(shape=[2], mean=0.0, stddev=1.0)  # noqa: E731
        return mb.cond(
            pred=mb.greater(x=mb.reduce_max(x=a), y=0.0),
            _true_fn=drawn,
            _false_fn=lambda: mb.add(x=a, y=a),
        )

    with pytest.raises(UnsupportedOperation, match="random_normal"):
        Evaluator(small_program(body, {"a": ((2,), "fp32")}))


def test_an_operation_that_fails_is_named() -> None:
    program = small_program(
        lambda a, shape: mb.reshape(x=a, shape=shape, name="fold"),
        {"a": ((6,), "fp32"), "shape": ((2,), "int32")},
    )
    with pytest.raises(EvaluationError, match="reshape fold: shape"):
        run(program, a=np.ones(6, np.float32), shape=np.array([4, 4], np.int32))


def test_results_are_rounded_once_to_their_type() -> None:
    x = np.array(
        [1.0009765625, 2048], np.float16
    )  # one unit above 1; 2048 has no odd neighbor in float16

    def body(a: Any) -> Any:
        # 1 + 2^-10 times itself lies between two float16; 2048 + 1.5 rounds to 2050, 2048 + 1 to
        # even.
        return mb.mul(x=a, y=a), mb.add(x=a, y=np.float16(1.5)), mb.add(x=a, y=np.float16(1))

    product, above, even = run(small_program(body, {"a": ((2,), "fp16")}), a=x).outputs.values()
    assert product.dtype == np.float16
    assert product[0] == np.float16(float(x[0]) ** 2)
    assert above[1] == 2050
    assert even[1] == 2048


def test_sums_are_accumulated_wider_than_stored() -> None:
    # A running float16 sum of ones stops at 2048, where one is half a step.
    program = small_program(lambda a: mb.reduce_sum(x=a, axes=[0]), {"a": ((4000,), "fp16")})
    assert run_one(program, a=np.ones(4000, np.float16)) == 4000


def test_overflow_is_traced_to_where_it_began() -> None:
    def body(a: Any) -> Any:
        large = mb.mul(x=a, y=np.float16(300), name="large")
        apart = mb.sub(x=large, y=large, name="apart")
        return mb.relu(x=apart, name="after")

    evaluation = run(small_program(body, {"a": ((2,), "fp16")}), a=np.array([300, 2], np.float16))
    first, second, third = evaluation.trace.nonfinite
    assert (first.operation, first.tensor, first.infinite, first.overflowed, first.nan) == (
        "mul",
        "large",
        1,
        1,
        0,
    )
    assert first.made_here
    assert first.dtype == "fp16"
    assert first.elements == 2
    assert (second.tensor, second.nan, second.made_here) == ("apart", 1, False)
    assert (third.tensor, third.made_here) == ("after", False)
    assert evaluation.trace.first_nan == second
    assert evaluation.trace.overflows == (first,)
    assert evaluation.trace.operations == 3


def test_a_finite_sum_of_large_numbers_is_no_finding() -> None:
    program = small_program(lambda a: mb.identity(x=a), {"a": ((2,), "fp32")})
    assert run(program, a=np.full(2, 3e38, np.float32)).trace.nonfinite == ()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_comes_in_is_not_made_here(value: float) -> None:
    program = small_program(lambda a: mb.add(x=a, y=1.0), {"a": ((2,), "fp32")})
    (found,) = run(program, a=np.array([1, value], np.float32)).trace.nonfinite
    assert not found.made_here
    assert (found.nan, found.infinite) == ((1, 0) if np.isnan(value) else (0, 1))


def test_an_infinite_constant_is_not_made_here() -> None:
    body = lambda a: mb.select(cond=mb.greater(x=a, y=0.0), a=a, b=np.float32(-np.inf))  # noqa: E731
    (found,) = run(
        small_program(body, {"a": ((2,), "fp32")}), a=np.array([1, -1], np.float32)
    ).trace.nonfinite
    assert not found.made_here
    assert found.infinite == 1
    assert found.overflowed == 0


def test_activations_are_freed_at_their_last_use() -> None:
    def body(a: Any) -> Any:
        for _ in range(20):
            a = mb.add(x=a, y=1.0)
        return a

    size = 4 * 10_000
    evaluation = run(
        small_program(body, {"a": ((10_000,), "fp32")}), a=np.zeros(10_000, np.float32)
    )
    assert evaluation.trace.peak_bytes == 2 * size


def test_what_is_read_later_is_kept() -> None:
    def body(a: Any) -> Any:
        early = mb.add(x=a, y=1.0)
        late = mb.mul(x=mb.mul(x=early, y=2.0), y=3.0)
        return mb.add(x=late, y=early), early

    total, early = run(small_program(body, {"a": ((2,), "fp32")}), a=ONE).outputs.values()
    np.testing.assert_array_equal(total, [14, 14])
    np.testing.assert_array_equal(early, TWO)


def test_an_input_and_a_constant_as_outputs() -> None:
    program = small_program(lambda a: [mb.const(val=TWO), a], {"a": ((2,), "fp32")})
    constant, given_back = run(program, a=ONE).outputs.values()
    np.testing.assert_array_equal(constant, TWO)
    np.testing.assert_array_equal(given_back, ONE)


def test_an_empty_tensor() -> None:
    symbol = ct.converters.mil.mil.get_new_symbol
    program = small_program(
        lambda a: [
            mb.softmax(x=a, axis=-1),
            mb.reduce_sum(x=a, axes=[0]),
            mb.concat(values=(a, a), axis=0),
        ],
        {"a": ((symbol(), 3), "fp32")},
    )
    soft, total, joined = run(program, a=np.zeros((0, 3), np.float32)).outputs.values()
    assert soft.shape == (0, 3)
    np.testing.assert_array_equal(total, np.zeros(3))
    assert joined.shape == (0, 3)


def test_sixteen_bit_whole_numbers(tmp_path: Path) -> None:
    program = mil_program(
        lambda a: mb.cast(
            x=mb.add(x=mb.cast(x=mb.cast(x=a, dtype="uint16"), dtype="int32"), y=1), dtype="fp32"
        ),
        {"a": ((2,), "int32")},
    )
    for each in (
        program_of(program),
        load_program(save_program(program, tmp_path / "p.mlpackage")),
    ):
        np.testing.assert_array_equal(run_one(each, a=np.array([65535, 7], np.int32)), [65536, 8])


SHAPES = st.lists(st.integers(1, 3), min_size=0, max_size=4)


@settings(max_examples=60)
@given(
    shape=SHAPES,
    left=st.data(),
    operation=st.sampled_from(["add", "sub", "mul", "maximum", "minimum"]),
)
def test_broadcasting(shape: list[int], left: Any, operation: str) -> None:
    """Any two shapes that broadcast, in every type: equal to coremltools' inference."""
    kind = left.draw(st.sampled_from([np.float32, np.float16, np.int32]))

    def operand() -> Any:
        kept = left.draw(st.integers(0, len(shape)))
        own = [left.draw(st.sampled_from([1, size])) for size in shape[kept:]]
        values = left.draw(
            st.lists(st.integers(-50, 50), min_size=int(np.prod(own)), max_size=int(np.prod(own)))
        )
        return np.array(values, kind).reshape(own) if own else kind(values[0])

    (inferred,), (found,) = apply(operation, x=operand(), y=operand())
    np.testing.assert_array_equal(found, inferred)


@settings(max_examples=60)
@given(data=st.data())
def test_reductions(data: Any) -> None:
    """Any axes, kept or not, negative or not, over whole numbers that float16 sums exactly."""
    shape = data.draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    rank = len(shape)
    axes = data.draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True))
    axes = [axis - rank if data.draw(st.booleans()) else axis for axis in axes]
    operation = data.draw(
        st.sampled_from(["reduce_sum", "reduce_max", "reduce_min", "reduce_sum_square"])
    )
    kind = data.draw(st.sampled_from([np.float32, np.float16, np.int32]))
    count = int(np.prod(shape))
    x = np.array(
        data.draw(st.lists(st.integers(-3, 3), min_size=count, max_size=count)), kind
    ).reshape(shape)
    (inferred,), (found,) = apply(operation, x=x, axes=axes, keep_dims=data.draw(st.booleans()))
    np.testing.assert_array_equal(found, inferred)


@settings(max_examples=80)
@given(data=st.data())
def test_slices_as_numpy_makes_them(data: Any) -> None:
    size = data.draw(st.integers(1, 6))
    begin, end = data.draw(st.integers(-size, size - 1)), data.draw(st.integers(-size, size))
    stride = data.draw(st.sampled_from([-2, -1, 1, 2]))
    masks = {"begin_mask": [data.draw(st.booleans())], "end_mask": [data.draw(st.booleans())]}
    x = np.arange(size, dtype=np.float32)
    bounds = slice(
        None if masks["begin_mask"][0] else begin, None if masks["end_mask"][0] else end, stride
    )
    symbol = ct.converters.mil.mil.get_new_symbol
    try:
        program = small_program(
            lambda a: mb.slice_by_index(x=a, begin=[begin], end=[end], stride=[stride], **masks),
            {"a": ((symbol(),), "fp32")},
        )
    except ValueError:
        reject()  # coremltools builds no such program: nothing could come of the slice
    np.testing.assert_array_equal(run_one(program, a=x), x[bounds])
