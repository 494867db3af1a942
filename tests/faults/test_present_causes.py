"""A cause that is present but not the reason is no headline.

Each row has a fault, and beside it what a check looks for, which makes no difference here.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from faults.recipes import write_recipe
from faults.whole.mutated import ORT, export_of, run

BATCH = {"batch": {"min": 1, "typical": 2, "max": 3}}
MODEL = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(6, 8)
        self.head = torch.nn.Linear(8, 4)
        self.rows = torch.nn.Parameter(torch.randn(3, 8))

    def forward(self, ARGUMENTS):
BODY

def build():
    torch.manual_seed(3)
    return Net().eval()
"""
LOW = {"runtime": "onnxruntime", "precision": "float16", "tolerance": {"max_abs": 0.05}}
Edit = Callable[[onnx.ModelProto], None]


def negated_head(model: onnx.ModelProto) -> None:
    """The fault of most rows: the head's weight has the wrong sign."""
    for tensor in model.graph.initializer:
        if tensor.name.endswith("head.weight"):
            values = -numpy_helper.to_array(tensor)
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


def negated_beside_nan(model: onnx.ModelProto) -> None:
    negated_head(model)
    spare = numpy_helper.from_array(np.full((3, 3), np.nan, np.float32), "spare.weight")
    model.graph.initializer.append(spare)


def negated_third_row(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        if tensor.name.endswith("rows"):
            values = numpy_helper.to_array(tensor).copy()
            values[2] *= -1
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))


@dataclasses.dataclass(frozen=True)
class Row:
    """`reason` are the codes that may lead, `present` those that may not. `exported` is the body of
    the model that the file is exported from, if it is another one.
    """

    name: str
    body: str
    reason: tuple[str, ...]
    present: tuple[str, ...]
    edit: Edit | None = negated_head
    inputs: tuple[str, ...] = ("x",)
    target: dict[str, Any] = dataclasses.field(default_factory=lambda: ORT)
    exported: str = ""

    def code(self, body: str) -> str:
        """Return the text of a `model.py` with that body."""
        lines = "\n".join(f"        {line}" for line in body.splitlines())
        return MODEL.replace("ARGUMENTS", ", ".join(self.inputs)).replace("BODY", lines)


ROWS = (
    Row(
        "a weight that nothing reads holds NaN",
        "return self.head(torch.tanh(self.first(x)))",
        ("N403",),
        ("E239", "N603"),
        negated_beside_nan,
    ),
    Row(
        "two inputs that may be swapped",
        "return self.head(torch.tanh(self.first(x) + self.first(z)))",
        ("N403",),
        ("C110", "C109"),
        inputs=("x", "z"),
    ),
    Row(
        "an input that the original ignores, too",
        "return self.head(torch.tanh(self.first(x))) + 0 * z[:, :4]",
        ("N403",),
        ("C108", "C112"),
        inputs=("x", "z"),
    ),
    Row(
        "a branch that no size turns",
        "h = self.first(x)\nif x.shape[1] == 6:\n    h = torch.tanh(h)\nreturn self.head(h)",
        ("N403",),
        ("E208", "E302"),
    ),
    Row(
        "a branch that turns in exactly the cases that fail",
        (
            "h = self.first(x) + self.rows[: x.shape[0]]\nif x.shape[0] > 2:\n    h = 1.0 * h\n"
            "return self.head(torch.tanh(h))"
        ),
        ("N403",),
        ("E302",),
        negated_third_row,
        exported="return self.head(torch.tanh(self.first(x) + self.rows[: x.shape[0]]))",
    ),
    Row(
        "rows that depend on their batch, in the original as well",
        "h = torch.tanh(self.first(x))\nreturn self.head(h - h.mean(0, keepdim=True))",
        ("N403",),
        ("N302",),
    ),
    Row(
        "a mask out of range where a norm is NaN anyway",
        (
            "h = self.head(self.first(x))\nd = h - h\nn = d / (d * d + 1e-12)\n"
            "return torch.softmax(n.masked_fill(x[:, :4] > 1.0, -1e9), -1)"
        ),
        ("N203",),
        ("N201", "N205"),
        None,
        target=LOW,
    ),
)


@pytest.mark.slow
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
@pytest.mark.sampled(3)
def test_what_makes_no_difference_is_no_headline(row: Row, tmp_path: Path) -> None:
    code = row.code(row.body)
    shape = ["batch", 6]
    keys = {
        "axes": BATCH,
        "inputs": [{"name": name, "dtype": "float32", "shape": shape} for name in row.inputs],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 4]}],
        "targets": {"built": row.target},
    }
    right = row.code(row.exported or row.body)
    recipe = write_recipe(tmp_path / "right", code=right, **keys)
    if row.edit is not None:
        model = export_of(recipe, tmp_path / "home")
        row.edit(model)
        recipe = write_recipe(tmp_path / "wrong", code=code, graph=model, **keys)
    (target,) = run(recipe, tmp_path / "home").targets
    assert target.status == "failed"
    leading = target.leading
    assert leading is not None
    assert leading.code in row.reason, target.headline
    assert leading.code not in row.present
