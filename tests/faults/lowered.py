"""Writes small models that are to be built in float16."""

from pathlib import Path
from typing import Any

import torch

from faults.exporting import exported
from faults.recipes import write_recipe

SIZES = {
    "batch": {"min": 1, "typical": 2, "max": 4},
    "sequence": {"min": 2, "typical": 6, "max": 12},
}
POSITIONS = ["batch", "sequence"]
NAMES = {0: "batch", 1: "sequence"}
MASK = {"name": "attention_mask", "dtype": "int64", "shape": POSITIONS, "sample": "padding_mask"}
ELSEWHERE = "the file was exported elsewhere; a recipe cannot change its contents"
LOOSE = {"tolerance": {"max_abs": 0.1, "cosine": 0.99}}
LARGE = {"tolerance": {"max_abs": 2, "cosine": 0.99}}


def low(
    folder: Path,
    code: str,
    *,
    features: int = 8,
    pooled: bool = False,
    masked: bool = False,
    traced: str | None = None,
    **keys: Any,
) -> Path:
    """Write a model of one float input `x` (batch x sequence x features) and an output `y`, to be
    built in float16.

    It is traced here and adopted as a file, which spares the stages torch; the float32 graph is the
    original. With `traced`, that is what is traced, and the model itself is the original.
    """
    module = keys.pop("module", "build")
    sample = keys.pop("sample", {"normal": [0, 1]})
    inputs = [{"name": "x", "dtype": "float32", "shape": [*POSITIONS, features], "sample": sample}]
    inputs += [MASK] if masked else []
    build = "\ndef build():\n    return Net()\n"
    example = {"x": torch.rand(2, 6, features)} | (
        {"attention_mask": torch.ones(2, 6, dtype=torch.int64)} if masked else {}
    )
    output_axes = {0: "batch"} if pooled else NAMES
    defaults: dict[str, Any] = {
        "axes": SIZES,
        "inputs": inputs,
        "outputs": [
            {"name": "y", "dtype": "float32", "shape": ["batch", 8] if pooled else [*POSITIONS, 8]}
        ],
        "verify": LOOSE,
        "targets": {
            "ort": {"runtime": "onnxruntime", "precision": keys.pop("precision", "float16")}
        },
    }
    graph = exported(
        (traced or code) + build,
        example,
        ("y",),
        axes=NAMES,
        output_axes=output_axes,
        module=module,
    )
    original = {"code": code + build} if traced is not None else {}
    return write_recipe(folder, graph=graph, **original, **defaults | keys)


ATTENTION = """
class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.query = torch.nn.Linear(8, 8)
        self.key = torch.nn.Linear(8, 8)
        self.value = torch.nn.Linear(8, 8)

    def forward(self, x, bias):
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 8**0.5
        return torch.softmax(scores + bias, -1) @ self.value(x)

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.attention = Attention()
        self.dense = torch.nn.Linear(8, 8)

    def forward(self, x, attention_mask):
        BIAS
        return self.dense(x + self.attention(x, bias))
"""


def attention(bias: str) -> str:
    return ATTENTION.replace("BIAS", bias)


STAGES = """
class Stage(torch.nn.Module):
    def forward(self, x):
        EXPRESSION

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.stage = Stage()
        self.dense = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.dense(self.stage(x))
"""
KEEP_STAGE = {"targets.ort.precision": {"default": "float16", "keep_float32": ["stage"]}}


def stage(*lines: str) -> str:
    return STAGES.replace("EXPRESSION", "\n        ".join(lines))
