"""How the contract's sizes and types are stated to Core ML."""

from pathlib import Path

import pytest
import torch
from coreml_modules import BATCH, behind_contract, converted, feeds, saved

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.runtimes.coreml.conversion.declared_shapes import input_types, served_contract
from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.mil.program_errors import FeedMismatchError

AXES = (Axis("batch", 1, 2, 4), Axis("past", 0, 3, 5), Axis("one", 1, 1, 1))


def contract(*shape: int | str, dtype: str = "float32") -> Contract:
    spec = TensorSpec("x", dtype, shape)  # type: ignore[arg-type]
    return Contract((spec,), (TensorSpec("y", dtype, shape),), AXES)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declared", "served"),
    [
        ("int64", "int32"),
        ("bool", "int32"),
        ("float64", "float32"),
        ("float16", "float16"),
        ("int32", "int32"),
    ],
)
def test_what_a_program_has_not_at_its_border_is_served_as_the_next_type(
    declared: str, served: str
) -> None:
    found = served_contract(contract(2, dtype=declared))
    assert (found.inputs[0].dtype, found.outputs[0].dtype) == (served, served)
    assert found.inputs[0].shape == (2,)


def test_an_axis_is_a_range_and_one_that_does_not_vary_is_fixed() -> None:
    (given,) = input_types(contract("batch", "one", 7), "range")
    first, second, third = given.shape.shape
    assert (first.lower_bound, first.upper_bound, first.default) == (1, 4, 2)
    assert (second, third) == (1, 7)


def test_arithmetic_over_axes_has_the_range_of_its_corners() -> None:
    (given,) = input_types(contract("batch + 2*past", 7), "range")
    size = given.shape.shape[0]
    assert (size.lower_bound, size.upper_bound, size.default) == (1, 14, 8)


def test_enumerated_shapes_are_the_combinations_with_the_typical_one_as_default() -> None:
    (given,) = input_types(contract("batch", 7), "enumerated")
    assert sorted(tuple(shape.shape) for shape in given.shape.shapes) == [(1, 7), (2, 7), (4, 7)]
    assert tuple(given.shape.default) == (2, 7)


class Doubling(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.mark.parametrize("shapes", ["range", "enumerated"])
def test_a_package_takes_what_it_states_and_nothing_else(shapes: str, tmp_path: Path) -> None:
    inputs = {"x": torch.randn(2, 3)}
    program = saved(
        converted(behind_contract(Doubling(), inputs, ["y"], (BATCH,)), inputs, shapes=shapes),
        tmp_path,
    )
    evaluator = Evaluator(program)
    for size in (1, 2, 4):
        assert evaluator.run(feeds({"x": torch.ones(size, 3)})).outputs["y"].shape == (size, 3)
    for size in (5, 3) if shapes == "enumerated" else (5,):
        with pytest.raises(FeedMismatchError, match="x does not take"):
            evaluator.run(feeds({"x": torch.ones(size, 3)}))
