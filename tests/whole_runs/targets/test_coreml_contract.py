"""Names and order of a Core ML package's inputs, in whole runs."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from coreml_recipes import package, recipe
from stage_requests import verify_request
from test_low_precision import codes, run

from convkit.host.home import Home
from convkit.host.run.run_options import RunOutcome
from convkit.host.store.store import Store
from convkit.protocol.contract import Contract
from convkit.protocol.json_codec import decode
from convkit.runtimes.coreml import verify as coreml_verify
from convkit.runtimes.coreml.packages.options import ProgramOptions
from convkit.worker.job_context import Context
from convkit.worker.mil.package_files import read_model, read_package

SWAPPED = """
import torch

class Net(torch.nn.Module):
    def forward(self, small, large):
        return small + 10 * large

def build():
    return Net()
"""
PAIR: dict[str, Any] = {
    "inputs": [
        {"name": name, "dtype": "float32", "shape": ["batch", 4], "sample": {"normal": [0, 1]}}
        for name in ("small", "large")
    ],
    "outputs": [{"name": "sum", "dtype": "float32", "shape": ["batch", 4]}],
}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def test_inputs_in_another_order_are_an_error_before_anything_is_converted(
    home: Path, tmp_path: Path
) -> None:
    crossed = PAIR | {"inputs": PAIR["inputs"][::-1]}
    outcome = run(recipe(tmp_path, SWAPPED, **crossed), home)
    assert "C103" in codes(outcome)
    assert outcome.record.exit_code == 1


@pytest.mark.thorough
def test_another_order_that_is_meant_keeps_each_name_its_meaning(
    home: Path, tmp_path: Path
) -> None:
    """coremltools names inputs by position; the contract's module takes them in the contract's
    order.
    """
    crossed = PAIR | {"inputs": PAIR["inputs"][::-1]}
    crossed |= {"export": {"exporter": "torch", "input_order": "recipe"}}
    outcome = run(recipe(tmp_path, SWAPPED, **crossed), home)
    assert outcome.record.status == "verified"


def test_an_input_the_model_lacks(home: Path, tmp_path: Path) -> None:
    third = {"name": "third", "dtype": "float32", "shape": ["batch", 4]}
    outcome = run(recipe(tmp_path, SWAPPED, **PAIR | {"inputs": [*PAIR["inputs"], third]}), home)
    assert outcome.record.exit_code == 1
    assert codes(outcome) & {"C101", "C104"}


@pytest.mark.thorough
def test_relabelled_inputs_are_seen_by_evaluating_by_name(home: Path, tmp_path: Path) -> None:
    """A package whose two inputs changed names, as positional `inputs=` leaves it, beside an
    honest reference.
    """
    outcome = run(recipe(tmp_path, SWAPPED, **PAIR), home)
    shutil.copytree(package(outcome).parent, tmp_path / "built")
    relabel(tmp_path / "built" / "model.mlpackage")
    reference = stored(outcome, home, "reference")
    contract = json.loads((package(outcome).parent / "contract.json").read_text())
    request = verify_request(
        tmp_path / "built",
        reference,
        contract=decode(Contract, contract),
        options=ProgramOptions("iOS17", "range"),
    )
    result, _ = coreml_verify.run(request, Context(tmp_path))
    right = [case.case for case in result.cases if not case.outputs[0].max_abs > 0.1]
    assert right == ["plain-rows:zeros"]  # both inputs are zeros
    crossed = next(probe for probe in result.probes if probe.probe.startswith("crossed:"))
    assert crossed.matches_base == pytest.approx(0, abs=1e-6), "right when swapped"


def relabel(path: Path) -> None:
    """Let a package's program take each of its two inputs for the other."""
    opened = read_package(path)
    model = read_model(opened)
    names = {"small": "large", "large": "small"}
    (block,) = model.mlProgram.functions["main"].block_specializations.values()
    for operation in block.operations:
        for argument in operation.inputs.values():
            for bound in argument.arguments:
                if bound.name in names:
                    bound.name = names[bound.name]
    opened.model.write_bytes(model.SerializeToString())


def stored(outcome: RunOutcome, home: Path, stage: str) -> Path:
    report = next(each for each in outcome.record.stages if each.id == stage)
    assert report.artifact is not None
    return Store(Home(home).store).view(report.artifact)
