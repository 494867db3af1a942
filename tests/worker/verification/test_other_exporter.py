"""A model that one exporter gets wrong is proven right with the other, and repaired with it."""

from pathlib import Path

import pytest
import torch
import yaml
from faults.recipes import write_recipe

from convkit.host.home import Home
from convkit.host.repair.repair_command import repair_recipe
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.verification.other_exporter import with_other_exporter

# Code that asks whether it is being exported is what makes exporters differ, in real models too.
CODE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)

    def forward(self, x):
        y = torch.tanh(self.layer(x))
        if {question}:
            y = y * {factor}
        return y

def build():
    return Net().eval()
"""
KEYS = {
    "axes": {"batch": {"min": 1, "typical": 2, "max": 3}},
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 3]}],
}


def options(folder: Path, exporter: str, question: str, factor: str = "1.5") -> RunOptions:
    code = CODE.format(question=question, factor=factor)
    export = {"exporter": exporter, "opset": 18}
    recipe = write_recipe(folder, code=code, export=export, **KEYS)
    return RunOptions(recipe, Home(folder / "home"), toolchain="host", track=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("exporter", "other", "question"),
    [
        ("torch", "torchscript", "torch.compiler.is_exporting()"),
        pytest.param("torchscript", "torch", "torch.jit.is_tracing()", marks=pytest.mark.thorough),
    ],
)
def test_the_exporter_that_works_is_named_proven_and_taken(
    tmp_path: Path, exporter: str, other: str, question: str
) -> None:
    outcome = repair_recipe(options(tmp_path, exporter, question))
    leading = outcome.first.targets[0].leading
    assert leading is not None
    assert leading.remedy is not None
    assert leading.remedy.change == {"export.exporter": other}
    assert f"The exporter {other} gets it right" in leading.message
    assert leading.evidence["other_exporter"]["error"] <= 1e-3
    assert outcome.repaired
    assert yaml.safe_load(outcome.text)["export"]["exporter"] == other


@pytest.mark.thorough
def test_an_exporter_that_is_wrong_too_is_not_suggested(tmp_path: Path) -> None:
    both = "torch.compiler.is_exporting() or torch.jit.is_tracing()"
    record = run_recipe(options(tmp_path, "torch", both)).record
    leading = record.targets[0].leading
    assert leading is not None
    assert "gets it right" not in leading.message
    assert leading.remedy is None or "export.exporter" not in leading.remedy.change


def test_what_an_exporter_wrote_wrong_is_its_own() -> None:
    place = Place(source="model.py:7")
    written = Finding("N407", "it reads b", place, {"operation": "atan2"}, Remedy("Connect it."))
    weight = Finding("N403", "a weight differs", place, {}, Remedy("Export again."))
    first, second = with_other_exporter([written, weight], "optimum", None, None)  # type: ignore[arg-type]
    assert first.evidence["owner"] == "exporter"
    assert f"exporter of torch {torch.__version__}" in first.message
    assert first.remedy is not None
    assert "Write atan2 at model.py:7 with other operations" in first.remedy.text
    assert second == weight
