"""Branches, loops, lists and states, in memory and through a saved package."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from mil_programs import (
    Function,
    MilProgram,
    ct,
    mb,
    mil_program,
    run,
    run_one,
    save_program,
    small_program,
    types,
)

from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.mil.program import load_program, program_of
from convkit.worker.mil.program_errors import EvaluationError, FeedMismatchError

X = {"x": ((2,), "fp32")}
PAIR = np.array([3, -4], np.float32)


def branching(x: Any) -> Any:
    outside = mb.mul(x=x, y=2.0)

    def positive() -> Any:
        return mb.add(x=outside, y=1.0)

    def negative() -> Any:
        return mb.sub(x=x, y=1.0)

    total = mb.reduce_sum(x=x, axes=[0])
    return mb.cond(pred=mb.greater(x=total, y=0.0), _true_fn=positive, _false_fn=negative)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("saved", [False, True])
def test_a_branch(sign: int, saved: bool, tmp_path: Path) -> None:
    program = mil_program(branching, X)
    loaded = (
        load_program(save_program(program, tmp_path / "p.mlpackage"))
        if saved
        else program_of(program)
    )
    x = np.array([3, 4], np.float32) * sign
    np.testing.assert_array_equal(run_one(loaded, x=x), x * 2 + 1 if sign > 0 else x - 1)


def doubling(x: Any, limit: Any) -> Any:
    """Double x until its first element reaches the limit; count the steps."""

    def goes_on(value: Any, count: Any) -> Any:
        first = mb.slice_by_index(x=value, begin=[0], end=[1], squeeze_mask=[True])
        return mb.less(x=first, y=mb.squeeze(x=limit))

    def body(value: Any, count: Any) -> Any:
        return mb.mul(x=value, y=2.0), mb.add(x=count, y=1)

    return mb.while_loop(_cond=goes_on, _body=body, loop_vars=(x, np.int32(0)))


@pytest.mark.parametrize("saved", [False, True])
def test_a_loop(saved: bool, tmp_path: Path) -> None:
    program = mil_program(doubling, X | {"limit": ((1,), "fp32")})
    loaded = (
        load_program(save_program(program, tmp_path / "p.mlpackage"))
        if saved
        else program_of(program)
    )
    value, count = run(loaded, x=PAIR, limit=np.array([20], np.float32)).outputs.values()
    np.testing.assert_array_equal(value, PAIR * 8)
    assert count == 3
    value, count = run(loaded, x=PAIR, limit=np.array([1], np.float32)).outputs.values()
    np.testing.assert_array_equal(value, PAIR)
    assert count == 0


def test_a_loop_that_overflows_is_traced_once() -> None:
    def body(x: Any) -> Any:
        return mb.while_loop(
            _cond=lambda _, count: mb.less(x=count, y=30),
            _body=lambda value, count: (mb.mul(x=value, y=np.float16(2)), mb.add(x=count, y=1)),
            loop_vars=(x, np.int32(0)),
        )

    found = run(
        small_program(body, {"x": ((2,), "fp16")}), x=np.ones(2, np.float16)
    ).trace.nonfinite
    assert len(found) == 1
    assert found[0].operation == "mul"
    assert (found[0].overflowed, found[0].times, found[0].made_here) == (2, 15, True)


def test_a_loop_without_an_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("convkit.worker.mil.kernels.control_flow._MOST_ITERATIONS", 5)

    def body(x: Any) -> Any:
        return mb.while_loop(
            _cond=lambda value: mb.less(x=mb.reduce_max(x=value, axes=[0]), y=9.0),
            _body=lambda value: mb.mul(x=value, y=1.0),
            loop_vars=(x,),
        )

    with pytest.raises(EvaluationError, match="still runs after 5 iterations"):
        run(small_program(body, X), x=PAIR)


def listing(x: Any) -> Any:
    start = mb.make_list(init_length=1, dynamic_length=True, elem_shape=(2,), dtype="fp32")
    one = mb.list_write(ls=start, index=0, value=x)
    grown = mb.list_write(ls=one, index=3, value=mb.mul(x=x, y=2.0))
    put = mb.list_scatter(ls=grown, indices=[1, 4], value=mb.stack(values=(x, x), axis=0))
    gathered = mb.list_gather(ls=put, indices=[3, 2, 0, 4])
    return mb.list_read(ls=put, index=1), gathered, mb.list_length(ls=put)


def test_a_list() -> None:
    read, gathered, length = run(small_program(listing, X), x=PAIR).outputs.values()
    np.testing.assert_array_equal(read, PAIR)
    np.testing.assert_array_equal(gathered, [PAIR * 2, PAIR * 0, PAIR, PAIR])
    assert length == 5


def test_a_list_of_fixed_length_does_not_grow() -> None:
    def body(x: Any) -> Any:
        start = mb.make_list(init_length=2, dynamic_length=False, elem_shape=(2,), dtype="fp32")
        return mb.list_read(ls=mb.list_write(ls=start, index=2, value=x), index=0)

    with pytest.raises(EvaluationError, match="index 2 is out of range for a list of 2 elements"):
        run(small_program(body, X), x=PAIR)


def test_reading_past_a_list_is_an_error() -> None:
    def body(x: Any) -> Any:
        start = mb.make_list(init_length=2, dynamic_length=True, elem_shape=(2,), dtype="fp32")
        return mb.list_read(ls=mb.list_write(ls=start, index=0, value=x), index=2)

    with pytest.raises(EvaluationError, match=r"list_read .*are out of range for an axis of 2"):
        run(small_program(body, X), x=PAIR)


def counting_program() -> MilProgram:
    """A program that adds its input to what it carries, and gives the sum."""
    inputs = {"x": mb.placeholder(shape=(2,), dtype=types.fp16)}
    state = mb.state_tensor_placeholder(shape=(2,), dtype=types.fp16)
    with Function({**inputs, "total": state}, opset_version=ct.target.iOS18) as function:
        carried = mb.read_state(input=function.inputs["total"])
        new = mb.add(x=carried, y=function.inputs["x"])
        given = mb.coreml_update_state(state=function.inputs["total"], value=new)
        function.set_outputs([mb.mul(x=given, y=np.float16(1))])
    program = MilProgram()
    program.add_function("main", function)
    return program


def test_a_state_comes_out_and_goes_in() -> None:
    evaluator = Evaluator(program_of(counting_program()))
    x = np.array([1, 2], np.float16)
    first = evaluator.run({"x": x})
    second = evaluator.run({"x": x}, first.states)
    np.testing.assert_array_equal(second.states["total"], [2, 4])
    np.testing.assert_array_equal(next(iter(second.outputs.values())), [2, 4])
    # Nothing is kept: a call without states begins at zeros, and what was given is as it was.
    np.testing.assert_array_equal(first.states["total"], x)
    np.testing.assert_array_equal(evaluator.run({"x": x}).states["total"], x)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        ({"sum": np.zeros(2, np.float16)}, "no state 'sum'; the program's are total"),
        ({"total": np.zeros(2, np.float32)}, "the state total takes float16, not float32"),
        ({"total": np.zeros(3, np.float16)}, "the state total does not take shape"),
    ],
)
def test_a_state_that_does_not_fit(states: dict[str, np.ndarray], message: str) -> None:
    with pytest.raises(FeedMismatchError, match=message):
        Evaluator(program_of(counting_program())).run({"x": np.zeros(2, np.float16)}, states)


class Accumulator(torch.nn.Module):
    """A module with a buffer that each call adds to."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x)
        return self.total * 2


def test_a_converted_state(tmp_path: Path) -> None:
    from torch_conversion import converted, exported

    # Only float16 states can be saved.
    states = [
        ct.StateType(wrapped_type=ct.TensorType(shape=(2, 3), dtype=np.float16), name="total")
    ]
    exported_program = exported(Accumulator(), [torch.zeros(2, 3)])
    path = converted(
        exported_program, tmp_path / "p.mlpackage", half=True, target=ct.target.iOS18, states=states
    )
    program = load_program(path)
    assert [each.name for each in program.states] == ["total"]
    evaluator = Evaluator(program)
    x = np.arange(6, dtype=program.inputs[0].dtype).reshape(2, 3)
    first = evaluator.run({"x": x})
    second = evaluator.run({"x": x}, first.states)
    np.testing.assert_array_equal(next(iter(second.outputs.values())), x * 4)
