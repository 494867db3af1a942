"""Every built model opens where the run left it: no tool refuses its external data."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
import yaml

from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.host.store.store import Store

MODEL = """
import torch

def build():
    return torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh())
"""
# The oldest release that the shipped recipes test, and the first that refuses symlinks.
RELEASES = ("1.21.1", "1.24.4")
LOAD = """
import sys, onnxruntime
onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
print(onnxruntime.__version__)
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    """A run of a model whose weights are in a file beside the graph."""
    folder = tmp_path_factory.mktemp("in-place")
    (folder / "model.py").write_text(MODEL)
    recipe = {
        "schema": 1,
        "name": "small",
        "model": {"factory": "model.py:build"},
        "tools": {"python": "3.11"},
        "export": {"exporter": "torchscript", "opset": 17},
        "axes": {"batch": {"min": 1, "typical": 3, "max": 5}},
        "inputs": [{"name": "input", "dtype": "float32", "shape": ["batch", 64]}],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 64]}],
        "verify": {"tolerance": {"max_abs": 1e-4}},
        "targets": {
            "ort": {"runtime": "onnxruntime"},
            "coreml": {"runtime": "coreml", "minimum": "iOS17", "precision": "float32"},
        },
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    outcome = run_recipe(RunOptions(path, Home(folder / "home"), toolchain="host", track=False))
    assert outcome.record.status == "verified"
    return outcome


def model_of(outcome: RunOutcome) -> Path:
    folder = outcome.folder / "models" / "ort"
    assert (folder / "model.onnx.data").stat().st_size >= 64 * 64 * 4
    return folder / "model.onnx"


def test_onnx_opens_it(outcome: RunOutcome) -> None:
    model = onnx.load(model_of(outcome))
    assert sum(np.prod(tensor.dims) for tensor in model.graph.initializer) >= 64 * 64


def test_onnx_ir_opens_it(outcome: RunOutcome) -> None:
    graph = onnx_ir.load(model_of(outcome)).graph
    weights = [value.const_value for value in graph.initializers.values()]
    assert sum(weight.numpy().size for weight in weights if weight is not None) >= 64 * 64


def test_onnxruntime_opens_it(outcome: RunOutcome) -> None:
    session = onnxruntime.InferenceSession(model_of(outcome), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {"input": np.zeros((2, 64), np.float32)})
    assert y.shape == (2, 64)


@pytest.mark.slow
def test_coremltools_opens_it(outcome: RunOutcome) -> None:
    import coremltools

    package = outcome.folder / "models" / "coreml" / "model.mlpackage"
    model = coremltools.models.MLModel(str(package), skip_model_load=True)
    assert [each.name for each in model.get_spec().description.input] == ["input"]
    assert sum(path.stat().st_size for path in package.rglob("weight.bin")) >= 64 * 64 * 4


@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_other_releases_of_onnxruntime_open_it(
    outcome: RunOutcome, tmp_path: Path, release: str
) -> None:
    uv = [str(Path(sys.executable).with_name("uv"))]
    environment = {**os.environ, "UV_PROJECT_ENVIRONMENT": str(tmp_path / "env")}
    for command in (
        ["venv", "--quiet", "--python", sys.executable, str(tmp_path / "env")],
        [
            *("pip", "install", "--quiet", "--python", str(tmp_path / "env" / "bin" / "python")),
            *(f"onnxruntime=={release.rpartition('.')[0]}.*", "numpy"),
        ],
    ):
        subprocess.run([*uv, *command], check=True, env=environment, cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    done = subprocess.run(
        [str(python), "-c", LOAD, str(model_of(outcome))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(release.rpartition(".")[0])


def test_an_edited_model_leaves_the_store_whole(outcome: RunOutcome) -> None:
    home = outcome.folder.parents[2]
    data = model_of(outcome).with_name("model.onnx.data")
    before = data.read_bytes()
    data.chmod(0o644)
    try:
        data.write_bytes(b"\0" * len(before))
        assert list(Store(home / "store").verify()) == []
    finally:
        data.write_bytes(before)
