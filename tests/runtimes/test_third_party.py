"""A runtime from another package, found through its entry point, converts a model."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from extra_runtime import RECIPE, write_runtime
from small_graphs import graph, save

from convkit.protocol.runtimes.runtime_registry import ENTRY_POINTS

PACKAGE = "tiny_runtime"


def install(site: Path) -> None:
    """Put the package and its entry point where an installer would."""
    write_runtime(site / PACKAGE, PACKAGE)
    info = site / "tiny_runtime-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-runtime\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINTS}]\ntiny = {PACKAGE}\n")


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
@pytest.mark.thorough
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
