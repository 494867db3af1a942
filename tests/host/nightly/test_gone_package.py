"""A night in isolated environments, and one after a package has gone from the index."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest
from held_environments import release_all
from small_graphs import graph, save

from convkit.host.home import Home
from convkit.host.nightly.accept_command import accept_run
from convkit.host.nightly.nightly_command import recipe_files, run_nightly
from convkit.host.nightly.recipe_check import NightlyOptions
from convkit.host.toolchain.environments.environment_builds import list_environments

TENSOR = {"dtype": "int64", "shape": ["batch", "sequence"]}
RECIPE = {
    "schema": 1,
    "name": "adopted",
    "model": {"onnx": "model.onnx"},
    "axes": {
        "batch": {"min": 1, "typical": 2, "max": 4},
        "sequence": {"min": 2, "typical": 6, "max": 12},
    },
    "inputs": [
        {"name": "ids", **TENSOR, "sample": {"integers": [1, 50]}},
        {"name": "mask", **TENSOR, "sample": "padding_mask"},
        {"name": "types", **TENSOR, "sample": {"integers": [0, 2]}},
    ],
    "outputs": [{"name": "score", "dtype": "float32", "shape": ["batch", "sequence"]}],
    "targets": {"ort": {"runtime": "onnxruntime"}},
}


@pytest.fixture
def recipes(tmp_path: Path) -> Path:
    save(tmp_path / "recipes", graph(), carries=None)
    (tmp_path / "recipes" / "adopted.yaml").write_text(json.dumps(RECIPE))
    return tmp_path / "recipes"


def accepted_night(recipes: Path, options: NightlyOptions) -> None:
    """Run the recipe in an isolated environment, and accept its run."""
    night = run_nightly(recipe_files([recipes]), options, tell=lambda _: None)
    assert night.green, night.recipes[0].faults
    accept_run(options.home.runs_of("adopted") / night.recipes[0].run, options.home, track=False)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.thorough
def test_newer_tools_are_tried_apart(recipes: Path, tmp_path: Path) -> None:
    options = NightlyOptions(Home(tmp_path / "home"), track=False)
    accepted_night(recipes, options)
    second = run_nightly(
        recipe_files([recipes]), dataclasses.replace(options, canary=True), tell=lambda _: None
    )
    assert second.green, second.recipes[0].faults
    assert [canary.kind for canary in second.canaries] == ["allowed", "newest"]
    assert second.canaries[0].status == "verified", second.canaries[0].headline
    # In their own home, which is gone afterwards.
    assert list((options.home.root / "scratch").iterdir()) == []
    assert second.recipes[0].reproduction is not None
    assert second.recipes[0].reproduction.worst == "BIT_IDENTICAL"


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.thorough
def test_a_package_that_is_gone_fails_the_build_and_is_named(
    recipes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    options = NightlyOptions(home, track=False)
    accepted_night(recipes, options)
    release_all()
    for folder, resolution in list_environments(home.root):
        if "onnxruntime" in resolution.packages:
            shutil.rmtree(folder)
    (tmp_path / "nothing").mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path / "nothing"))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    for variable in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_INDEX", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(variable, raising=False)
    second = run_nightly(recipe_files([recipes]), options, tell=lambda _: None)
    (recipe,) = second.recipes
    assert recipe.status == "regressed"
    assert recipe.reproduction is not None
    assert recipe.reproduction.worst == "BUILD_FAILED"
    # The first package that is missing is named, and that only a place that still has it can make
    # the run again.
    told = " ".join(fault.message for fault in recipe.faults)
    assert re.search(r"installing \d+ packages failed: the index has no ", told)
    (artifact,) = recipe.reproduction.artifacts
    assert "A past run used it, and can be reproduced only" in artifact.why[0]
    assert recipe.damaged == ()
