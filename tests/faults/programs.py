"""Faults of Core ML programs in float16; the model itself is converted, off macOS its program is
evaluated.
"""

from pathlib import Path
from typing import Any

from faults.architectures import IMAGES, text
from faults.corpus import fault, healthy
from faults.healthy_recipes import LOW_TOLERANCE, floats
from faults.recipes import write_recipe

COREML: dict[str, Any] = {"runtime": "coreml", "precision": "float16", "tolerance": LOW_TOLERANCE}


def program(folder: Path, body: str, **keys: Any) -> Path:
    """Write a module of one input `x` (batch x 8) and an output `y` of its shape."""
    code = f"""
class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.dense = torch.nn.Linear(8, 8)

    def forward(self, x):
        {body}

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.head = torch.nn.Linear(8, 8)

    def forward(self, x):
        return self.head(self.block(x))

def build():
    return Net()
"""
    keys = {"inputs": [floats("x", 8, uniform=[0.5, 1])], "targets": {"coreml": COREML}} | keys
    return write_recipe(folder, code=code, axes=IMAGES, outputs=[floats("y", 8)], **keys)


@fault(
    code="N201",
    place="block",
    remedy="largest value",
    change={"targets.coreml.precision": {"default": "float16", "saturate": True}},
    repaired=True,
    source="CT#2223, CT PR 2669",
)
def a_mask_by_product(folder: Path) -> Path:
    """(1 - mask) times float32's lowest value: coremltools makes it zero times infinity"""
    lowest = "torch.finfo(torch.float32).min"
    return program(folder, f"return torch.softmax(self.dense(x) + (x > 0.9) * {lowest}, -1)")


@fault(code="N202", place="block.dense", remedy="float32", repaired=True, source="CT#2110")
def an_activation_beyond_float16(folder: Path) -> Path:
    """a gain of 3e5 in one layer, undone right after it, without a constant to find"""
    return program(folder, "return torch.tanh(self.dense(x * 3e5) * 1e-6)")


@healthy(tempts="constants that float16 stores differently from float32")
def bert_as_a_program(folder: Path) -> Path:
    """BERT with sdpa attention as an ML program"""
    return text(folder, "bert", attention="sdpa", targets={"coreml": COREML})
