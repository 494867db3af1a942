"""Whole nightly runs: real runs of a tiny model in this environment, real MLflow on sqlite."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from past_runs import MODEL, RECIPE, flip_byte

from convkit.cli.main import app
from convkit.host.home import Home
from convkit.host.nightly.accept_command import accept_run
from convkit.host.nightly.earlier_nights import unfinished_run
from convkit.host.nightly.nightly_command import recipe_files, run_nightly
from convkit.host.nightly.nightly_record import FORMAT, NightlyRun, RecipeResult
from convkit.host.nightly.recipe_check import NightlyOptions
from convkit.host.store.digests import write_json
from convkit.protocol.errors import UsageError
from convkit.protocol.json_codec import encode


@pytest.fixture(scope="module")
def first_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home after one nightly run over the small recipe."""
    folder = tmp_path_factory.mktemp("first")
    write(folder / "recipes", "small")
    assert nightly(folder / "recipes", folder / "home").green
    return folder / "home"


@pytest.fixture
def recipes(tmp_path: Path, first_home: Path) -> Path:
    """Return a folder with the small recipe, beside a home that has run it once."""
    shutil.copytree(first_home, tmp_path / "home")
    folder = tmp_path / "recipes"
    write(folder, "small")
    return folder


def write(folder: Path, name: str, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(MODEL)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(RECIPE | {"name": name} | changes, sort_keys=False))
    return path


def nightly(recipes: Path, home: Path, *, track: bool = False, **options: Any) -> NightlyRun:
    place = Home(home)
    asked = NightlyOptions(place, toolchain="host", track=track, **options)
    return run_nightly(recipe_files([recipes], place), asked, tell=lambda _: None)


def accepted(recipes: Path, home: Path, **options: Any) -> Path:
    """Accept the newest run of the small recipe; return the run's folder."""
    folder = max(Home(home).runs_of("small").glob("*/result.json")).parent
    accept_run(
        folder, Home(home), recipe=recipes / "small.yaml", **{"track": False, "note": "n"} | options
    )
    return folder


def messages(result: RecipeResult, kind: str) -> list[str]:
    return [fault.message for fault in result.faults if fault.kind == kind]


def test_the_second_run_is_green_and_everything_is_built_again(
    recipes: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    baseline = accepted(recipes, home)
    second = nightly(recipes, home)
    assert second.green, second.recipes[0].faults
    (recipe,) = second.recipes
    assert recipe.run != baseline.name, "a nightly run is never served from the store"
    assert recipe.baseline == baseline.name
    assert recipe.reproduction is not None
    assert recipe.reproduction.worst == "BIT_IDENTICAL"
    assert recipe.improvements == ()


@pytest.mark.parametrize("reuse", [False, True])
def test_verification_always_runs_and_builds_come_from_the_store_only_on_request(
    recipes: Path, tmp_path: Path, reuse: bool
) -> None:
    home = tmp_path / "home"
    (recipe,) = nightly(recipes, home, reuse_builds=reuse).recipes
    assert "no baseline, so only failures show; accept a run" in " ".join(recipe.notes)
    folder = Home(home).runs_of("small") / recipe.run
    record = json.loads((folder / "result.json").read_text())
    status = {stage["id"]: stage["status"] for stage in record["stages"]}
    made = "hit" if reuse else "done"
    assert status == {"export": made, "reference": made, "build:ort": made, "verify:ort": "done"}


@pytest.mark.thorough
def test_a_corrupt_artifact_of_the_baseline_is_a_regression(recipes: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    flip_byte(accepted(recipes, home) / "models" / "ort" / "model.onnx")
    (recipe,) = nightly(recipes, home).recipes
    assert recipe.status == "regressed"
    assert recipe.damaged == ("models/ort/model.onnx: changed",)
    assert messages(recipe, "baseline") == [
        "the baseline's run changed: models/ort/model.onnx: changed"
    ]


@pytest.mark.thorough
def test_a_model_that_no_longer_builds_is_a_regression(recipes: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    accepted(recipes, home)
    (recipes / "model.py").write_text("def build():\n    raise RuntimeError('gone')\n")
    (recipe,) = nightly(recipes, home).recipes
    assert recipe.status == "regressed"
    assert recipe.reproduction is not None
    assert recipe.reproduction.worst == "BUILD_FAILED"


@pytest.mark.thorough
def test_a_changed_weight_is_located(recipes: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    accepted(recipes, home)
    changed = MODEL.replace(
        "    return Small()",
        "    net = Small()\n    net.scale.weight.data[1, 2] += 0.5\n    return net",
    )
    (recipes / "model.py").write_text(changed)
    (recipe,) = nightly(recipes, home).recipes
    assert (recipe.status, recipe.damaged, recipe.verdicts) == (
        "regressed",
        (),
        {"ort": "verified"},
    )
    assert recipe.reproduction is not None
    (artifact,) = recipe.reproduction.artifacts
    assert artifact.likeness == "DRIFTED"
    assert any("initializer" in line and "weight" in line for line in artifact.where), (
        artifact.where
    )
    assert any("source model.py:build" in line for line in artifact.why)
    (source,) = messages(recipe, "source")
    assert source.startswith("source model.py:build: sha256 ")


@pytest.mark.thorough
def test_a_target_that_fails_now_is_a_regression(recipes: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    accepted(recipes, home)
    write(recipes, "small", verify={"seed": 11, "tolerance": {"max_abs": 1e-30, "mean_abs": 0.0}})
    (recipe,) = nightly(recipes, home).recipes
    assert recipe.status == "regressed"
    (verdict,) = messages(recipe, "verdict")
    assert verdict.startswith("ort failed (verified in the baseline): ")


@pytest.mark.thorough
def test_a_loosened_tolerance_is_red_until_it_is_accepted(recipes: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    accepted(recipes, home)
    write(recipes, "small", verify={"seed": 11, "tolerance": {"max_abs": 1e-3}})
    (recipe,) = nightly(recipes, home, reuse_builds=True).recipes
    assert recipe.verdicts == {"ort": "verified"}
    assert [fault.message for fault in recipe.faults] == ["ort y tolerance: max_abs 1e-05 -> 0.001"]
    accepted(recipes, home, note="the output is in millimeters now")
    (recipe,) = nightly(recipes, home, reuse_builds=True).recipes
    assert recipe.status == "green", recipe.faults


@pytest.mark.thorough
def test_a_broken_recipe_does_not_stop_the_others(recipes: Path, tmp_path: Path) -> None:
    (recipes / "broken.yaml").write_text("schema: 1\nnmae: broken\n")
    write(recipes, "zebra")
    done = nightly(recipes, tmp_path / "home")
    assert {each.recipe: each.status for each in done.recipes} == {
        "broken": "broken",
        "small": "green",
        "zebra": "green",
    }
    assert not done.green
    assert "nmae" in done.recipes[0].faults[0].message


class TestResuming:
    def half(self, recipes: Path, home: Path, started: float) -> NightlyRun:
        files = tuple(str(file) for file in recipe_files([recipes], Home(home)))
        done = nightly(recipes, home).recipes[:1]
        half = NightlyRun(FORMAT, "20990101-000000-half", started, files, None, done)
        write_json(home / "nights" / half.id / "nightly.json", encode(half))
        return half

    @pytest.mark.thorough
    def test_a_killed_run_resumes_where_it_was(self, recipes: Path, tmp_path: Path) -> None:
        write(recipes, "zebra")
        half = self.half(recipes, tmp_path / "home", time.time() - 60)
        done = nightly(recipes, tmp_path / "home")
        assert (done.id, len(done.recipes), done.green) == (half.id, 2, True)
        assert done.recipes[0] == half.recipes[0], "what was finished is not done again"
        assert done.ended is not None

    @pytest.mark.thorough
    def test_one_of_other_recipes_or_of_long_ago_does_not(
        self, recipes: Path, tmp_path: Path
    ) -> None:
        home = tmp_path / "home"
        half = self.half(recipes, home, time.time() - 60)
        assert unfinished_run(Home(home), half.asked) == half
        assert unfinished_run(Home(home), (*half.asked, "more.yaml")) is None
        shutil.rmtree(home / "nights")
        old = self.half(recipes, home, time.time() - 21 * 3600)
        assert unfinished_run(Home(home), old.asked) is None


def test_what_is_no_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such recipe"):
        recipe_files([tmp_path / "nowhere"])
    with pytest.raises(UsageError, match="no recipe"):
        recipe_files([tmp_path])


@pytest.mark.thorough
def test_only_a_sound_run_is_accepted(recipes: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    folder = accepted(recipes, home)
    flip_byte(folder / "models" / "ort" / "model.onnx")
    with pytest.raises(UsageError, match=r"not intact: models/ort/model\.onnx"):
        accept_run(folder, Home(home), recipe=recipes / "small.yaml", track=False)
    write(recipes, "small", verify={"seed": 11, "tolerance": {"max_abs": 1e-30, "mean_abs": 0.0}})
    (failed,) = nightly(recipes, home).recipes
    with pytest.raises(UsageError, match="only a verified run"):
        accept_run(Home(home).runs_of("small") / failed.run, Home(home), track=False)


@pytest.mark.thorough
def test_the_command_writes_its_files_and_fails_on_a_regression(
    recipes: Path, tmp_path: Path
) -> None:
    from typer.testing import CliRunner

    (recipes / "broken.yaml").write_text("schema: 1\n")
    home, junit = tmp_path / "home", tmp_path / "junit.xml"
    command = [
        "nightly",
        str(recipes),
        "--toolchain",
        "host",
        "--no-track",
        "--home",
        str(home),
        "--junit",
        str(junit),
    ]
    before = set((home / "nights").iterdir())
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1, done.output
    assert "NOT green" in done.output
    assert 'errors="1"' in junit.read_text()
    (folder,) = set((home / "nights").iterdir()) - before
    assert {path.name for path in folder.iterdir()} == {"nightly.json", "nightly.md", "junit.xml"}
