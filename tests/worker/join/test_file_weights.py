"""Parts that are ONNX files: weights that differ from the original's are named and proven."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import yaml
from onnx import numpy_helper
from test_join_stages import reference_of

CODE = """
import torch

class Whole(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 6)
        self.second = torch.nn.Linear(6, 6)
        self.last = torch.nn.Linear(6, 3)

    def forward(self, x):
        return self.last(torch.tanh(self.second(torch.relu(self.first(x)))))

class Second(torch.nn.Module):
    def __init__(self, whole):
        super().__init__()
        self.inner, self.top = whole.second, whole.last

    def forward(self, state):
        return self.top(torch.tanh(self.inner(state)))

class First(torch.nn.Module):
    def __init__(self, whole):
        super().__init__()
        self.first = whole.first

    def forward(self, x):
        return torch.relu(self.first(x))

def whole():
    return Whole().eval()

def first():
    return First(whole())
"""


def tensor(name: str, width: int) -> dict[str, object]:
    return {"name": name, "dtype": "float32", "shape": ["batch", width]}


RECIPE = {
    "schema": 1,
    "name": "halves",
    "original": {"factory": {"call": "model.py:whole", "seed": 3}},
    "tools": {"python": "3.11", "torch": "==2.13.*", "onnxruntime": "==1.31.*"},
    "axes": {"batch": {"min": 1, "typical": 3, "max": 4}},
    "parts": {
        "first": {
            "model": {"factory": {"call": "model.py:first", "seed": 3}},
            "inputs": [tensor("x", 4)],
            "outputs": [tensor("state", 6)],
        },
        "second": {
            "model": {"onnx": "second.onnx"},
            "inputs": [tensor("state", 6)],
            "outputs": [tensor("y", 3)],
        },
    },
    "inputs": [tensor("x", 4)],
    "outputs": [tensor("y", 3)],
    "join": [{"call": "first"}, {"call": "second", "inputs": {"state": "first.state"}}],
    "targets": {"ort": {"runtime": "onnxruntime"}},
}


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Write a recipe whose second part is a file with the original's weights."""
    (tmp_path / "model.py").write_text(CODE, encoding="utf-8")
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    names: dict[str, Any] = {}
    exec(CODE, names)
    torch.manual_seed(3)
    second = names["Second"](names["whole"]())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's own deprecations
        torch.onnx.export(
            second,
            (torch.randn(2, 6),),
            str(tmp_path / "second.onnx"),
            dynamo=False,
            opset_version=17,
            input_names=["state"],
            output_names=["y"],
            dynamic_axes={"state": {0: "batch"}, "y": {0: "batch"}},
        )
    return tmp_path / "recipe.yaml"


def test_a_file_with_the_original_s_weights_agrees(recipe: Path) -> None:
    assert reference_of(recipe)[2] == []


@pytest.mark.parametrize("weights", [["inner.weight"], ["inner.weight", "top.weight"]])
def test_a_file_with_other_weights_is_named_and_proven(recipe: Path, weights: list[str]) -> None:
    path = recipe.parent / "second.onnx"
    model = onnx.load(path)
    for each in model.graph.initializer:
        if each.name in weights:
            values = numpy_helper.to_array(each) * np.float32(1.5)
            each.CopyFrom(numpy_helper.from_array(values, each.name))
    onnx.save(model, path)
    (error,) = reference_of(recipe)[2]
    assert error.code == "C517"
    assert error.evidence["tensors"] == weights
    first = (
        "'inner.weight' of part 'second' has different values from 'second.weight' of the original"
    )
    assert first in error.message
    assert "1.5" in error.message
    assert ("so do 1 more" in error.message) == (len(weights) > 1)


def test_a_part_that_is_too_large_to_compare_is_left_out(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = recipe.parent / "second.onnx"
    model = onnx.load(path)
    values = numpy_helper.to_array(model.graph.initializer[0])
    model.graph.initializer[0].CopyFrom(
        numpy_helper.from_array(values * 2, model.graph.initializer[0].name)
    )
    onnx.save(model, path)
    monkeypatch.setattr("convkit.worker.join.file_weights._LARGEST", 10)
    (error,) = reference_of(recipe)[2]
    assert error.code == "C510"
