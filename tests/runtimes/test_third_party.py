"""A runtime from another package, found through its entry point, converts a model."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from small_graphs import graph, save

from convkit.runtimes.registry import ENTRY_POINTS

PACKAGE = "tiny_runtime"
FILES = {
    "__init__.py": """
from convkit.runtimes.row import Runtime

RUNTIME = Runtime(
    name="tiny",
    package="tiny_runtime",
    target="target:TinyTarget",
    options="options:TinyOptions",
    jobs={"build": "build", "verify": "verify"},
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

from convkit.recipe.targets import GraphTarget
from tiny_runtime.options import TinyOptions


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

from convkit.models.graph.contract import graph_contract, load_graph
from convkit.worker.sessions import RunFailedError

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
from convkit.stages.graph_build import build_graph
from tiny_runtime import session


def run(request, context):
    return build_graph(request, session, context)
""",
    "verify.py": """
from convkit.stages.graph_verify import verify_graph
from tiny_runtime import session


def run(request, context):
    return verify_graph(request, session, context)
""",
}


def install(site: Path) -> None:
    """Put the package and its entry point where an installer would."""
    for name, text in FILES.items():
        file = site / PACKAGE / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text.lstrip())
    info = site / "tiny_runtime-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-runtime\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\ntiny = {PACKAGE}\n")


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


def convkit(site: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with the package on the path, as in an environment that has it."""
    return subprocess.run(
        [sys.executable, "-m", "convkit.cli.main", *arguments],
        env={**os.environ, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    install(folder)
    return folder


def test_its_targets_are_in_the_schema(site):
    schema = json.loads(convkit(site, "schema").stdout)
    assert "TinyTarget" in schema["$defs"]
    assert "TinyTarget" not in json.loads(convkit(site.parent, "schema").stdout)["$defs"]


@pytest.mark.slow
@pytest.mark.network  # the isolated environments have the runtime's tools, but not its package
def test_it_converts_a_model_and_its_own_option_reaches_the_worker(site, tmp_path):
    save(tmp_path / "original", graph(), carries=None)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE, sort_keys=False))
    home = str(tmp_path / "home")
    ran = convkit(site, "run", str(recipe), "--home", home, "--json")
    assert ran.returncode == 1, ran.stdout + ran.stderr  # one target is wrong on purpose
    targets = {each["name"]: each for each in json.loads(ran.stdout)["targets"]}
    assert {name: each["status"] for name, each in targets.items()} == {
        "right": "verified",
        "wrong": "failed",
    }
    (verification,) = targets["right"]["verifications"]
    assert verification["evidence"] == "device"
    assert verification["providers"] == ["reference"]
    assert len(verification["cases"]) >= 5
