"""A runtime that works: ONNX's own reference evaluator, which can multiply outputs by a factor."""

import sys
from pathlib import Path
from typing import Any

NAME = "tiny"
# Its modules; PACKAGE is replaced by the name of the package they are put in.
_FILES = {
    "__init__.py": """
from convkit.protocol.runtimes.runtime_row import Runtime

RUNTIME = Runtime(
    name="tiny",
    package="PACKAGE",
    target="target:TinyTarget",
    options="options:TinyOptions",
    jobs={
        "precision": "convkit.worker.stages.graph_precision",
        "build": "build",
        "verify": "verify",
    },
    session=None,
    suffix=".tiny",
    tools=("onnx",),
)
""",
    "options.py": """
import dataclasses


@dataclasses.dataclass(frozen=True)
class TinyOptions:
    factor: float = 1.0
""",
    "target.py": """
from typing import Literal

from pydantic import Field

from convkit.host.recipe.keys.targets import GraphTarget
from PACKAGE.options import TinyOptions


class TinyTarget(GraphTarget):
    runtime: Literal["tiny"] = Field(description="what runs the built model")
    device: Literal["cpu"] = Field("cpu", description="where it runs")
    versions: tuple[str, ...] = Field((), description="releases that serve the artifact")
    factor: float = Field(1.0, description="what outputs are multiplied by: 1 is right")

    def options(self):
        return TinyOptions(self.factor)

    def packages(self, stage, *, stand_in):
        return ("onnx", "onnx-ir", "numpy")
""",
    "session.py": '''
"""Runs graphs with ONNX's own reference evaluator."""

import numpy as np
import onnx
from onnx.reference import ReferenceEvaluator

from convkit.worker.graph.graph_contract import graph_contract, load_graph
from convkit.worker.runtime_interface.sessions import RunFailedError

MODEL_FILE = "model.tiny"


def build(graph, request, context):
    (context.output / MODEL_FILE).write_bytes(graph.read_bytes())
    return []


def open(path, device, options):
    return Session(path, options.factor)


def refusals(operators, device):
    return []


def keeps_operators(options):
    return True


def plain(options):
    return ()


class Session:
    providers = ("reference",)

    def __init__(self, path, factor):
        self._graph = load_graph(path)
        self._evaluator = ReferenceEvaluator(onnx.load(path, format="protobuf"))
        self._factor = np.float32(factor)

    def contract(self):
        return graph_contract(self._graph)

    def metadata(self):
        return {entry.key: entry.value for entry in onnx_props(self._graph)}

    def run(self, feeds):
        try:
            values = self._evaluator.run(None, dict(feeds))
        except Exception as error:
            raise RunFailedError(str(error)) from error
        names = self._evaluator.output_names
        return {n: (v * self._factor).astype(v.dtype) for n, v in zip(names, values)}

    def fallbacks(self):
        return ()


def onnx_props(graph):
    class Entry:
        def __init__(self, key, value):
            self.key, self.value = key, value

    return [Entry(key, value) for key, value in graph.metadata_props.items()]
''',
    "build.py": """
from convkit.worker.stages.graph_build import build_graph
from PACKAGE import session


def run(request, context):
    return build_graph(request, session, context)
""",
    "verify.py": """
from convkit.worker.stages.graph_verify import verify_graph
from PACKAGE import session


def run(request, context):
    return verify_graph(request, session, context)
""",
}


def write_runtime(folder: Path, package: str) -> None:
    """Write the runtime's modules into a folder from which `package` is imported."""
    folder.mkdir(parents=True)
    for name, text in _FILES.items():
        (folder / name).write_text(text.lstrip().replace("PACKAGE", package), encoding="utf-8")


# One target is right, the other is wrong on purpose.
RECIPE: dict[str, Any] = {
    "schema": 1,
    "name": "tiny",
    "model": {"onnx": "original/model.onnx"},
    "tools": {"python": f"{sys.version_info.major}.{sys.version_info.minor}"},
    "axes": {
        "batch": {"min": 1, "typical": 2, "max": 4},
        "sequence": {"min": 2, "typical": 6, "max": 12},
    },
    "inputs": [
        {"name": name, "dtype": "int64", "shape": ["batch", "sequence"], "sample": sample}
        for name, sample in (
            ("ids", {"integers": [1, 50]}),
            ("mask", "padding_mask"),
            ("types", {"integers": [0, 2]}),
        )
    ],
    "outputs": [{"name": "score", "dtype": "float32", "shape": ["batch", "sequence"]}],
    "verify": {"tolerance": {"max_abs": 1.0e-5}},
    "targets": {"right": {"runtime": "tiny"}, "wrong": {"runtime": "tiny", "factor": 1.5}},
}
