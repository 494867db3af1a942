"""Contracts that are not the model's, repaired: real exports, tiny models."""

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from test_low_precision import write_recipe
from test_repair_command import applied, repair

from convkit.host.home import Home
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


TWO_INPUTS = """
import torch

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(10, 4)

    def forward(self, ids, mask, scale=None):
        y = self.embedding(ids) * mask.unsqueeze(-1)
        return RETURNED

def build():
    return Net()
"""
ONE = TWO_INPUTS.replace("RETURNED", "y")
UNNAMED = TWO_INPUTS.replace("RETURNED", "y, y.sum(1)")
NAMED = TWO_INPUTS.replace("RETURNED", "{'hidden': y, 'pooled': y.sum(1)}")
IDS = {
    "name": "ids",
    "dtype": "int64",
    "shape": ["batch", "length"],
    "sample": {"integers": [0, 10]},
}
MASK = {"name": "mask", "dtype": "int64", "shape": ["batch", "length"], "sample": "padding_mask"}
HIDDEN = {"name": "hidden", "dtype": "float32", "shape": ["batch", "length", 4]}
POOLED = {"name": "pooled", "dtype": "float32", "shape": ["batch", 4]}
LENGTHS = {
    "batch": {"min": 1, "typical": 3, "max": 5},
    "length": {"min": 2, "typical": 6, "max": 9},
}


def contract_recipe(
    folder: Path, code: str, inputs: list[Any], outputs: list[Any], **changes: Any
) -> Path:
    return write_recipe(
        folder, code, "float32", axes=LENGTHS, inputs=inputs, outputs=outputs, **changes
    )


# What the recipe declares, and which remedies make it the model's: every fault at least once,
# several at a time.
CONTRACTS: dict[str, tuple[str, list[Any], list[Any], dict[str, list[str]]]] = {
    "a misspelled input, inputs in another order, an output of another type": (
        NAMED,
        [MASK | {"name": "masks"}, IDS],
        [POOLED | {"dtype": "float64"}],
        {"C104": ["inputs.0.name"], "C103": ["inputs"], "C205": ["outputs.0.dtype"]},
    ),
    "names of their own": (
        NAMED,
        [IDS, MASK | {"name": "z"}],
        [POOLED | {"name": "y"}],
        {"C101": ["inputs.1.from"], "C204": ["outputs.0.from"]},
    ),
    "a misspelled output with an axis that it does not have": (
        NAMED,
        [IDS, MASK],
        [POOLED | {"name": "pool", "shape": ["batch", "length", 4]}],
        {"C204": ["outputs.0.name"], "C207": ["outputs.0.shape"]},
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", CONTRACTS)
@pytest.mark.sampled(2)
def test_a_contract_that_is_not_the_model_s_is_repaired(
    fault: str, home: Path, tmp_path: Path
) -> None:
    code, inputs, outputs, expected = CONTRACTS[fault]
    outcome = repair(contract_recipe(tmp_path, code, inputs, outputs), home)
    assert outcome.repaired, outcome.ending
    assert {code: list(change) for _, code, change in applied(outcome)} == expected
    assert {step.outcome for step in outcome.steps if step.round == outcome.steps[-1].round} == {
        "verified"
    }
    (tmp_path / "repaired.yaml").write_text(outcome.text)
    recipe = load_recipe(tmp_path / "repaired.yaml").recipe
    (output,) = recipe.outputs
    assert (output.dtype, output.shape) == ("float32", ("batch", 4))


@pytest.mark.slow
@pytest.mark.thorough
def test_an_order_that_was_wrong_keeps_each_output_under_its_name(
    home: Path, tmp_path: Path
) -> None:
    """To give the outputs the shapes that stand in their places would verify too, with the names
    exchanged.
    """
    outcome = repair(contract_recipe(tmp_path, UNNAMED, [IDS, MASK], [POOLED, HIDDEN]), home)
    outputs = yaml.safe_load(outcome.text)["outputs"]
    assert outputs == [HIDDEN, POOLED]
    assert [spec.name for spec in outcome.last.record.contract.outputs] == ["hidden", "pooled"]


@pytest.mark.slow
@pytest.mark.thorough
def test_an_input_of_another_type_is_repaired(home: Path, tmp_path: Path) -> None:
    code = ONE.replace(
        " * mask.unsqueeze(-1)", ".masked_fill(~mask.unsqueeze(-1), 0.0)"
    )  # bools alone
    outcome = repair(contract_recipe(tmp_path, code, [IDS, MASK], [HIDDEN]), home)
    assert applied(outcome) == [(1, "C105", {"inputs.1.dtype": "bool"})]
    assert outcome.repaired


@pytest.mark.slow
@pytest.mark.thorough
def test_an_order_is_found_again_in_someone_else_s_file(home: Path, tmp_path: Path) -> None:
    """An ONNX file's inputs and outputs in another order than the recipe's."""
    first = run_recipe(
        RunOptions(
            contract_recipe(tmp_path / "first", UNNAMED, [IDS, MASK], [HIDDEN, POOLED]),
            Home(home),
            toolchain="host",
            track=False,
        )
    )
    model = {"onnx": os.path.relpath(first.folder / "models" / "ort" / "model.onnx", tmp_path)}
    outcome = repair(
        contract_recipe(tmp_path, "", [MASK, IDS], [POOLED, HIDDEN], model=model), home
    )
    assert applied(outcome) == [
        (1, "C103", {"inputs": [{"name": "ids"}, {"name": "mask"}]}),
        (1, "C203", {"outputs": [{"name": "hidden"}, {"name": "pooled"}]}),
    ]
    assert outcome.repaired
