"""The type of a report, and how its model is written into a folder."""

import dataclasses
import textwrap
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import onnx

# Who has to act: original: the model or torch's own behavior · module's code: its author ·
# exporter, optimizer, converter: the step that changed the graph · runtime's kernel, runtime's
# fusion · processor: the same file is right on another kind · recipe: what was asked for.
Owner = Literal[
    "original",
    "module's code",
    "exporter",
    "optimizer",
    "converter",
    "runtime's kernel",
    "runtime's fusion",
    "processor",
    "recipe",
]

ORT: dict[str, object] = {"runtime": "onnxruntime"}
TARGETS: dict[str, dict[str, object]] = {
    "ort": ORT,
    "ov": {"runtime": "openvino"},
    "coreml": {"runtime": "coreml", "precision": "float32"},
    "coreml16": {"runtime": "coreml"},
    "ort16": ORT | {"precision": "float16"},
    "trt16": {"runtime": "tensorrt", "precision": "float16"},
    "dynamic8": ORT | {"precision": {"quantize": "dynamic-int8"}},
    "static8": ORT | {"precision": {"quantize": "static-int8"}},
    "signed8": ORT | {"precision": {"quantize": "static-int8", "symmetric": True}},
    "old": ORT | {"versions": ["==1.21.*"]},
}
EVERYWHERE = ("ort", "ov", "coreml")

# Marks the line of a module that is the right place.
HERE = "# here"
_HEADER = "import torch\nfrom torch import nn\nfrom torch.nn import functional as F\n\n\n"


@dataclasses.dataclass(frozen=True)
class Right:
    """What is true of one target, according to the thread.

    `cause` and `remedy` are regular expressions: the first for the leading finding's message, the
    second for its remedy's text and change. `place` is one for its place or message; by default it
    is the line that is marked with HERE. `corrected`: convkit converts around the fault, so a
    verified target is as right as a finding.
    """

    owner: Owner
    cause: str
    remedy: str
    place: str = ""
    corrected: bool = False


@dataclasses.dataclass(frozen=True)
class Report:
    """One thread, as a module (`module`) or a file in ONNX's text syntax (`graph`).

    `thread` is the tracker and the number, `cause` what the thread found, in our words. `example`
    is the expression of one call's inputs. `right` has an entry for each target on which the fault
    arises with today's releases; on the other targets the model must be verified.
    """

    name: str
    thread: str
    year: int
    cause: str
    module: str = ""
    example: str = ""
    graph: str = ""
    right: Mapping[str, Right] = dataclasses.field(default_factory=dict)
    targets: tuple[str, ...] = EVERYWHERE
    # Needs a release that is not installed: runs with isolated environments only.
    isolated: bool = False

    @property
    def half(self) -> Literal["development", "scoring"]:
        """The half of the set: by name, so that nobody chooses it."""
        return "development" if zlib.crc32(self.name.encode()) % 2 else "scoring"

    def write(self, folder: Path) -> Path:
        """Write the model into a folder; return what `convkit init` takes."""
        folder.mkdir(parents=True, exist_ok=True)
        if self.graph:
            path = folder / "model.onnx"
            onnx.save(onnx.parser.parse_model(self.graph), path)
            return path
        path = folder / "model.py"
        path.write_text(
            f"{_HEADER}{self.module}\n\ndef build():\n    torch.manual_seed(0)\n    return Net()\n"
            f"\n\ndef example():\n    torch.manual_seed(1)\n    return {self.example}\n"
        )
        return path

    def place_of(self, right: Right, folder: Path) -> str:
        """Return the regular expression of the right place of a report written into a folder."""
        if right.place or self.graph:
            return right.place
        lines = (folder / "model.py").read_text().splitlines()
        marked = [number for number, line in enumerate(lines, 1) if line.endswith(HERE)]
        return "|".join(rf"model\.py:{number}\b" for number in marked)


def net(arguments: str, forward: str, init: str = "") -> str:
    """Return the source of a module `Net` with this `forward` and `__init__`, indented as one."""
    parts = ["class Net(nn.Module):"]
    if init:
        body = textwrap.indent(textwrap.dedent(init).strip(), " " * 8)
        parts += ["    def __init__(self):", "        super().__init__()", body, ""]
    body = textwrap.indent(textwrap.dedent(forward).strip(), " " * 8)
    return "\n".join([*parts, f"    def forward(self, {arguments}):", body, ""])
