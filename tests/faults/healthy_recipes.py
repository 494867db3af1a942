"""Recipes for small healthy models, from x to y, by default in float32 and float16."""

from pathlib import Path
from typing import Any

import torch

from faults.exporting import exported
from faults.recipes import write_recipe

ORT = {"runtime": "onnxruntime"}
LOW_TOLERANCE = {"max_abs": 0.05, "cosine": 0.999}
FLOAT16 = ORT | {"precision": "float16", "tolerance": LOW_TOLERANCE}
BFLOAT16 = ORT | {
    "device": "cuda",
    "precision": "bfloat16",
    "tolerance": {"max_abs": 0.2, "cosine": 0.99},
}
BOTH = {"ort": ORT, "low": FLOAT16}
SIZES = {
    "batch": {"min": 1, "typical": 2, "max": 4},
    "sequence": {"min": 2, "typical": 6, "max": 12},
}
POSITIONS = ["batch", "sequence"]
MASK = {"name": "attention_mask", "dtype": "int64", "shape": POSITIONS, "sample": "padding_mask"}


def floats(name: str, *shape: str | int, **sample: Any) -> dict[str, Any]:
    """Return an input or output of float32; sizes after the batch."""
    tensor = {"name": name, "dtype": "float32", "shape": ["batch", *shape]}
    return tensor | ({"sample": sample} if sample else {})


def right(folder: Path, code: str, *, inputs: Any = None, outputs: Any = None, **keys: Any) -> Path:
    """Write a model that takes `x` (batch x sequence x 8) and gives `y` of the same shape, in
    float32 and float16.

    It is traced here and adopted as a file that is its own original, which spares the stages torch;
    see `module`.
    """
    shaped = _shaped(inputs, outputs)
    sizes = {"batch": 2, "sequence": 6}
    examples = {}
    for tensor in shaped["inputs"]:
        shape = [sizes.get(size, size) for size in tensor["shape"]]
        is_float = tensor["dtype"] == "float32"
        examples[tensor["name"]] = (
            torch.rand(shape) if is_float else torch.ones(shape, dtype=torch.int64)
        )
    names = [tensor["name"] for tensor in shaped["outputs"]]
    axes = {
        tensor["name"]: {i: size for i, size in enumerate(tensor["shape"]) if size in sizes}
        for tensor in (*shaped["inputs"], *shaped["outputs"])
    }
    graph = exported(_code(code), examples, names, dynamic_axes=axes)
    return write_recipe(folder, graph=graph, **shaped | keys)


def module(
    folder: Path, code: str, *, inputs: Any = None, outputs: Any = None, **keys: Any
) -> Path:
    """Write the same with the module itself as the model, which convkit exports and proves the
    export against.
    """
    return write_recipe(folder, code=_code(code), **_shaped(inputs, outputs) | keys)


def _code(body: str) -> str:
    return f"class Net(torch.nn.Module):{body}\ndef build():\n    return Net()\n"


def _shaped(inputs: Any, outputs: Any) -> dict[str, Any]:
    inputs = inputs or [floats("x", "sequence", 8)]
    outputs = outputs or [floats("y", "sequence", 8)]
    shapes = str([tensor["shape"] for tensor in (*inputs, *outputs)])
    return {
        "axes": {axis: sizes for axis, sizes in SIZES.items() if axis in shapes},
        "inputs": inputs,
        "outputs": outputs,
        "targets": BOTH,
    }


def layers(build: str, forward: str, *helpers: str) -> str:
    """Return a module's body: attributes that `build` sets, and what `forward` returns, one
    statement a line.
    """
    lines = [f"        {line}" for line in build.splitlines()]
    body = [f"        {line}" for line in forward.splitlines()]
    arguments = helpers[0] if helpers else "x"
    return "\n".join(
        [
            "",
            "    def __init__(self):",
            "        super().__init__()",
            *lines,
            "",
            f"    def forward(self, {arguments}):",
            *body,
        ]
    )
