"""Models whose own code loses something when it is traced, one fault each, by line."""

import dataclasses
from pathlib import Path
from typing import Any

from faults.healthy import MASK, POSITIONS, floats
from faults.recipes import write_recipe
from faults.whole.mutated import COREML, OPENVINO, ORT
from faults.whole.subjects import TEXT

DYNAMO = {"runtime": "onnxruntime", "export": {"exporter": "torch", "opset": 18}}
EVERYWHERE = {"ort": ORT, "dynamo": DYNAMO, "openvino": OPENVINO, "coreml": COREML}
_X = [floats("x", "sequence", 6)]
_Y = [floats("y", "sequence", 6)]
_IDS = {"name": "ids", "dtype": "int64", "shape": POSITIONS, "sample": {"integers": [0, 40]}}


@dataclasses.dataclass(frozen=True)
class CodeFault:
    """A module, the codes that name its fault, and what a finding must name: `here` is the line
    with that comment, anything else a tensor or an axis.
    """

    name: str
    init: str
    forward: str
    codes: frozenset[str]
    place: str = "here"
    inputs: tuple[dict[str, Any], ...] = (_X[0],)
    keys: dict[str, Any] = dataclasses.field(default_factory=dict)

    @property
    def source(self) -> str:
        """The text of its `model.py`."""
        names = ", ".join(each["name"] for each in self.inputs)
        lines = [
            "import math, random, time",
            "import numpy as np",
            "from torch.nn import functional as F",
            "class Net(torch.nn.Module):",
            "    def __init__(self):",
            "        super().__init__()",
            "        self.layer = torch.nn.Linear(6, 6)",
            *(f"        {line}" for line in self.init.splitlines()),
            f"    def forward(self, {names}):",
            *(f"        {line}" for line in self.forward.strip().splitlines()),
            "def build():",
            "    return Net().eval()",
        ]
        return "\n".join(lines)

    def write(self, folder: Path) -> Path:
        """Write its recipe for every runtime."""
        keys: dict[str, Any] = {"axes": TEXT, "inputs": [*self.inputs], "outputs": _Y}
        return write_recipe(folder, code=self.source, **keys | {"targets": EVERYWHERE} | self.keys)

    def named_at(self, recipe: Path) -> str:
        """Return what the headline must name."""
        if self.place != "here":
            return self.place
        lines = (recipe.parent / "model.py").read_text().splitlines()
        return f"model.py:{next(i for i, line in enumerate(lines, 1) if '# here' in line)}"


CODE_FAULTS = (
    CodeFault(
        "branch on values",
        "",
        "y = self.layer(x)\nif x.mean() > 0:  # here\n    y = y * 2\nreturn y",
        frozenset({"E208", "E305"}),
    ),
    CodeFault(
        "branch on a size",
        "",
        "y = self.layer(x)\nif x.shape[1] > 5:  # here\n    y = y * 2\nreturn y",
        frozenset({"E302", "C113", "C106"}),
    ),
    CodeFault(
        "a value becomes a number",
        "",
        "scale = float(x.abs().max())  # here\nreturn self.layer(x) / scale",
        frozenset({"E208", "E305", "N510"}),
    ),
    CodeFault(
        "computed by numpy",
        "",
        "gain = torch.from_numpy(x.detach().numpy().mean((1, 2), keepdims=True))  # here\n"
        "return self.layer(x) * gain",
        frozenset({"E305", "N510"}),
    ),
    CodeFault(
        "noise",
        "",
        "return self.layer(x) + torch.randn_like(x)  # here",
        frozenset({"N303", "N304"}),
    ),
    CodeFault(
        "a batch in a shape",
        "",
        "return self.layer(x.reshape(2, -1, 6))  # here",
        frozenset({"C106", "C113"}),
    ),
    CodeFault(
        "too few positions",
        "self.places = torch.nn.Embedding(7, 6)",
        "return self.layer(x) + self.places(torch.arange(x.shape[1]))[None]",
        frozenset({"C113"}),
        "sequence",
    ),
    CodeFault(
        "numbers beyond int32",
        "self.words = torch.nn.Embedding(97, 6)",
        "hashed = (ids * 2654435761) % 97  # here\nreturn self.layer(self.words(hashed))",
        frozenset({"T108"}),
        inputs=(_IDS,),
        keys={"targets": {"coreml": COREML}},
    ),
    CodeFault(
        "fully masked rows",
        "",
        "scores = self.layer(x) @ x.transpose(1, 2)\n"
        "scores = scores.masked_fill(attention_mask[:, None] == 0, float('-inf'))\n"
        "return scores.softmax(-1) @ x",
        frozenset({"N103", "N205"}),
        "masked-row",
        inputs=(_X[0], MASK),
    ),
    CodeFault(
        "an operator without a translation",
        "",
        "return torch.special.airy_ai(self.layer(x))  # here",
        frozenset({"V103"}),
        keys={"targets": {"coreml": COREML}},
    ),
    CodeFault(
        "steps counted from values",
        "",
        "y = x\nfor _ in range(int(attention_mask.sum(1).max())):  # here\n"
        "    y = torch.tanh(self.layer(y))\nreturn y",
        frozenset({"E208", "E305", "N510"}),
        inputs=(_X[0], MASK),
    ),
)
