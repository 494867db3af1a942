"""A run that fails says why and where, in its headline."""

from pathlib import Path

import onnx
import pytest
import torch
from faults.exporting import exported
from faults.recipes import write_recipe
from onnx import numpy_helper

from convkit.host.home import Home
from convkit.host.record.run_record import RunRecord
from convkit.host.run import search_environments
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.protocol.errors import ConvkitError

CODE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.norm = torch.nn.LayerNorm(16)
        self.last = torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.last(self.norm(torch.relu(self.first(x))))

def build():
    return Net()
"""
SIGNATURE = {
    "axes": {"batch": {"min": 1, "typical": 2, "max": 4}},
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 8]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 3]}],
}


def graph() -> onnx.ModelProto:
    x = torch.randn(2, 8, generator=torch.Generator().manual_seed(0))
    return exported(CODE, {"x": x}, ("y",), axes={0: "batch"}, output_axes={0: "batch"})


def ran(folder: Path, model: onnx.ModelProto) -> RunRecord:
    recipe = write_recipe(folder, code=CODE, graph=model, **SIGNATURE)
    return run_recipe(
        RunOptions(recipe, Home(folder / "home"), toolchain="host", track=False)
    ).record


def test_an_attribute_is_the_headline_with_its_place(tmp_path: Path) -> None:
    model = graph()
    norm = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
    next(a for a in norm.attribute if a.name == "epsilon").f = 0.1
    record = ran(tmp_path, model)
    (target,) = record.targets
    assert target.headline.startswith("N405 ")
    assert "epsilon is 0.1 and should be 1e-05" in target.headline
    leading = target.verifications[0].findings[0]
    assert (leading.place.node, leading.place.module) == (norm.name, "norm")
    assert leading.place.source == "model.py:11"
    assert leading.evidence["proven"] is True
    # What was merely possible is gone, and so is a remedy that cannot help.
    assert "N402" not in {finding.code for finding in target.verifications[0].findings}
    assert not any("another exporter" in f.remedy.text for f in record.findings if f.remedy)


def test_a_search_that_cannot_start_is_told_and_the_verdict_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = graph()
    norm = next(node for node in model.graph.node if node.op_type == "LayerNormalization")
    next(a for a in norm.attribute if a.name == "epsilon").f = 0.1

    def no_environment() -> Path:
        raise ConvkitError("no release of torch fits")

    monkeypatch.setattr(search_environments, "host_python", no_environment)
    (target,) = ran(tmp_path, model).targets
    assert target.status == "failed"
    findings = {finding.code: finding for finding in target.verifications[0].findings}
    assert findings["N402"].is_error
    assert not findings["E216"].is_error
    assert "no release of torch fits" in findings["E216"].message
    assert target.headline.split(" ")[0] != "E216"


def test_a_weight_is_the_headline(tmp_path: Path) -> None:
    model = graph()
    tensor = next(each for each in model.graph.initializer if each.name == "last.bias")
    tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * 2, tensor.name))
    (target,) = ran(tmp_path, model).targets
    leading = target.verifications[0].findings[0]
    assert leading.code == target.headline.split(" ")[0] == "N403"
    assert (leading.place.tensor, leading.place.module) == ("last.bias", "last")
    assert leading.evidence["proven"] is True
    assert leading.evidence["after"] < 1e-5 < leading.evidence["before"]
    assert "scaled by 2" in target.headline


# A fast path that only eager mode takes, by the inputs' values: as nn.TransformerEncoder has one.
FAST_PATH = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 3)

    def forward(self, x):
        y = self.layer(x)
        if not torch.compiler.is_compiling() and bool((x[:, 0] > -1).all()):
            y = y * 2
        return y

def build():
    return Net()
"""


@pytest.mark.thorough
def test_who_exports_with_torch_is_not_told_to(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, code=FAST_PATH, **SIGNATURE, export={"exporter": "torch"})
    options = RunOptions(recipe, Home(tmp_path / "home"), toolchain="host", track=False)
    (target,) = run_recipe(options).record.targets
    leading = target.verifications[0].findings[0]
    assert leading.code == "E208"
    assert leading.place.source == "model.py:10"
    assert leading.remedy is not None
    assert leading.remedy.text == "Write the branch with torch.where or torch.cond."
