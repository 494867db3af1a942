"""The case of a recipe's own example."""

import dataclasses

import numpy as np
import pytest
from small_graphs import CONTRACT, SAMPLES, tensor

from convkit.protocol.contract import Axis, Contract
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.case_ladder import build_ladder
from convkit.worker.cases.example_case import example_case
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.job_context import UnfitDataError

FLOATS = Contract((tensor("x"),), (tensor("y"),), CONTRACT.axes)
VALUES = (np.arange(18, dtype=np.float32) / 10).reshape(3, 6)


def made(contract=FLOATS):
    return CaseInputs(contract, SAMPLES, 0, ModelFacts())


def saved(folder, **arrays):
    np.savez(folder / "e.npz", **arrays)
    return str(folder / "e.npz")


def test_the_example_comes_first_with_its_own_values_and_sizes(tmp_path):
    path = saved(tmp_path, x=VALUES)
    cases, _ = build_ladder(made(), (), None, example=path)
    first = cases[0]
    assert first.name == "example"
    assert "your own example, e.npz" in first.description
    assert first.sizes == {"batch": 3, "sequence": 6}
    assert first.inputs()["x"].tobytes() == VALUES.tobytes()


def test_the_quick_ladder_has_it_too(tmp_path):
    cases, _ = build_ladder(made(), (), None, example=saved(tmp_path, x=VALUES), ladder="quick")
    assert [case.name for case in cases][:2] == ["example", "smallest"]


def test_a_recipe_without_an_example_says_so():
    assert example_case(made(), None) == "the recipe has no example (verify.example)"


def test_a_size_within_arithmetic_is_solved(tmp_path):
    doubled = dataclasses.replace(FLOATS.inputs[0], shape=("batch", "2*sequence"))
    contract = dataclasses.replace(FLOATS, inputs=(doubled,))
    (case,) = example_case(made(contract), saved(tmp_path, x=VALUES))
    assert case.sizes == {"batch": 3, "sequence": 3}


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"y": VALUES}, "has 'y'; the recipe's inputs are 'x'"),
        ({"x": VALUES[0]}, "shape [6]"),
        ({"x": np.tile(VALUES, (4, 1))}, "a size of 'batch' outside of 1 to 4"),
        ({"x": VALUES.astype(np.complex64)}, "complex64"),
    ],
)
def test_an_example_of_another_contract_is_refused(tmp_path, arrays, says):
    with pytest.raises(UnfitDataError, match=r"verify\.example") as refusal:
        example_case(made(), saved(tmp_path, **arrays))
    assert says in str(refusal.value)


def test_a_file_that_is_no_archive_is_refused(tmp_path):
    (tmp_path / "e.npz").write_text("no")
    with pytest.raises(UnfitDataError, match=r"not a readable \.npz file"):
        example_case(made(), str(tmp_path / "e.npz"))


def test_an_input_of_fixed_size_must_have_it(tmp_path):
    fixed = Contract(
        (dataclasses.replace(tensor("x"), shape=(2, 6)),), (tensor("y"),), (Axis("b", 1, 1, 2),)
    )
    with pytest.raises(UnfitDataError, match="shape"):
        example_case(made(fixed), saved(tmp_path, x=VALUES))
