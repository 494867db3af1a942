"""Faults of sizes: a dimension that became a number, or carries another's name."""

from pathlib import Path
from typing import Any

import onnx
import torch

from faults.corpus import fault
from faults.exporting import exported
from faults.recipes import write_recipe
from faults.spans import ADOPTED, AXES, NAMES

HEADS = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = torch.nn.Linear(4, 8)

    def forward(self, x):
        return self.heads(x).reshape(SHAPE).transpose(1, 2).sum(-1)

def build():
    return Net()
"""
BY_INT = HEADS.replace("SHAPE", "x.shape[0], x.shape[1].__index__(), 2, 4")
BY_SIZE = HEADS.replace("SHAPE", "x.shape[0], x.shape[1], 2, 4")
FLOATS = {
    "name": "x",
    "dtype": "float32",
    "shape": ["batch", "sequence", 4],
    "sample": {"normal": [0, 1]},
}
SPLIT: dict[str, Any] = {
    "axes": AXES,
    "inputs": [FLOATS],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 2, "sequence"]}],
}


def heads(code: str, axes: dict[int, str]) -> onnx.ModelProto:
    x = torch.linspace(-1, 1, 48).reshape(2, 6, 4)
    return exported(code, {"x": x}, ("y",), axes=axes, output_axes={0: "batch", 2: "sequence"})


@fault(
    code="C106",
    place="/model/Shape",
    remedy="export with exporter: torch",
    change={"export.exporter": "torch"},
    repaired=True,
    source="PT#110347",
)
def sequence_made_a_number(folder: Path) -> Path:
    """max(x.shape[1], 4) silently made the example's sequence length a constant"""
    mean = BY_SIZE.replace("self.heads(x)", "(self.heads(x) / max(x.shape[1], 4))")
    return write_recipe(folder, code=mean, **SPLIT)


@fault(
    code="C106",
    place="sequence",
    remedy="without int()",
    repaired="the model's own code fixes the size; the recipe cannot change it",
    source="PT#110347",
)
def sequence_by_int(folder: Path) -> Path:
    """A size made a plain number fixes the sequence length with either exporter"""
    return write_recipe(folder, code=BY_INT, **SPLIT)


@fault(code="C106", place="x", remedy="tensor.shape", repaired=ADOPTED, source="PT#110347")
def baked_sequence_in_a_file(folder: Path) -> Path:
    """a file declares a variable sequence, but reshapes to the example's length"""
    code = BY_INT.replace(".sum(-1)", ".sum((2, 3))")
    outputs = [{"name": "y", "dtype": "float32", "shape": ["batch", 2]}]
    return write_recipe(folder, code=code, graph=heads(code, NAMES), **SPLIT | {"outputs": outputs})


@fault(code="C106", place="x", remedy="symbolic", repaired=ADOPTED, source="PT#110347")
def unnamed_batch(folder: Path) -> Path:
    """a file was exported without a name for the batch axis"""
    return write_recipe(folder, code=BY_SIZE, graph=heads(BY_SIZE, {1: "sequence"}), **SPLIT)


@fault(
    code="C107",
    place="x",
    remedy=".shape to the model's",
    repaired="a repair never changes an input's shape",
    source="PT#110347",
)
def wrong_shape(folder: Path) -> Path:
    """the recipe says five features, but the file expects four"""
    wide = FLOATS | {"shape": ["batch", "sequence", 5]}
    return write_recipe(folder, graph=heads(BY_SIZE, NAMES), **SPLIT | {"inputs": [wide]})


@fault(code="C107", place="x", remedy="shape", repaired=ADOPTED, source="PT#165748")
def one_name_for_two_axes(folder: Path) -> Path:
    """after an upgrade, the exporter merged batch and sequence into one axis, s77"""
    return write_recipe(folder, graph=heads(BY_SIZE, {0: "s77", 1: "s77"}), **SPLIT)
