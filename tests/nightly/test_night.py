"""Whole nights: real runs of a tiny model in this environment, real MLflow on sqlite."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from past_runs import MODEL, RECIPE, flip_byte

from convkit.cli.main import app
from convkit.codec import encode
from convkit.errors import UsageError
from convkit.home import Home
from convkit.nightly.accepting import accept_run
from convkit.nightly.baseline import find_baseline
from convkit.nightly.model import FORMAT, Night
from convkit.nightly.night import NightOptions, recipe_files, run_night, unfinished_night
from convkit.store.digests import write_json


@pytest.fixture(scope="module")
def first_night(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a home after one night over the small recipe."""
    folder = tmp_path_factory.mktemp("first")
    write(folder / "recipes", "small")
    assert night(folder / "recipes", folder / "home").green
    return folder / "home"


@pytest.fixture
def recipes(tmp_path: Path, first_night: Path) -> Path:
    """Return a folder with the small recipe, beside a home in which it had its first night."""
    shutil.copytree(first_night, tmp_path / "home")
    folder = tmp_path / "recipes"
    write(folder, "small")
    return folder


def write(folder: Path, name: str, **changes: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(MODEL)
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(RECIPE | {"name": name} | changes, sort_keys=False))
    return path


def night(recipes: Path, home: Path, *, track: bool = False, **options: Any) -> Night:
    asked = NightOptions(Home(home), toolchain="host", track=track, **options)
    return run_night(recipe_files([recipes]), asked, tell=lambda _: None)


def accepted(recipes: Path, home: Path) -> Path:
    """Accept the first night's run; return the run's folder."""
    (result,) = Home(home).runs_of("small").glob("*/result.json")
    accept_run(result.parent, Home(home), track=False)
    return result.parent


def test_the_second_night_is_green_and_everything_is_made_again(
    recipes: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    baseline = accepted(recipes, home)
    second = night(recipes, home)
    assert second.green
    (recipe,) = second.recipes
    assert recipe.run != baseline.name, "a night is never served from the store"
    assert recipe.baseline == baseline.name
    assert recipe.reproduction is not None
    assert recipe.reproduction.worst == "BIT_IDENTICAL"


@pytest.mark.parametrize("reuse", [False, True])
def test_verification_always_runs_and_builds_only_where_the_night_says_so(
    recipes: Path, tmp_path: Path, reuse: bool
) -> None:
    home = tmp_path / "home"
    (recipe,) = night(recipes, home, reuse_builds=reuse).recipes
    assert "no baseline; accept one: convkit accept" in " ".join(recipe.notes)
    record = json.loads((Home(home).runs_of("small") / recipe.run / "result.json").read_text())
    status = {stage["id"]: stage["status"] for stage in record["stages"]}
    made = "hit" if reuse else "done"
    assert status == {"export": made, "reference": made, "build:ort": made, "verify:ort": "done"}


def test_a_corrupt_artifact_of_the_baseline_is_a_regression(recipes: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    flip_byte(accepted(recipes, home) / "models" / "ort" / "model.onnx")
    (recipe,) = night(recipes, home).recipes
    assert recipe.status == "regression"
    assert recipe.damaged == ("models/ort/model.onnx: changed",)
    assert recipe.regressions[0].startswith(
        "the baseline's bytes have changed: models/ort/model.onnx"
    )


def test_a_changed_weight_is_drift_and_located(recipes: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    accepted(recipes, home)
    changed = MODEL.replace(
        "    return Small()",
        "    net = Small()\n    net.scale.weight.data[1, 2] += 0.5\n    return net",
    )
    (recipes / "model.py").write_text(changed)
    (recipe,) = night(recipes, home).recipes
    assert (recipe.status, recipe.damaged, recipe.verdicts) == (
        "regression",
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


def test_a_target_that_fails_now_is_a_regression(recipes: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    accepted(recipes, home)
    write(recipes, "small", verify={"seed": 11, "tolerance": {"max_abs": 1e-30, "mean_abs": 0.0}})
    (recipe,) = night(recipes, home).recipes
    assert recipe.status == "regression"
    assert any(
        text.startswith("ort is failed (verified in the baseline)") for text in recipe.regressions
    )


def test_a_broken_recipe_does_not_stop_the_others(recipes: Path, tmp_path: Path) -> None:
    (recipes / "broken.yaml").write_text("schema: 1\nnmae: broken\n")
    write(recipes, "zebra")
    done = night(recipes, tmp_path / "home")
    assert {each.recipe: each.status for each in done.recipes} == {
        "broken": "broken",
        "small": "green",
        "zebra": "green",
    }
    assert not done.green
    assert "nmae" in done.recipes[0].regressions[0]


class TestGoingOn:
    def half(self, recipes: Path, home: Path, started: float) -> Night:
        files = tuple(str(file) for file in recipe_files([recipes]))
        done = night(recipes, home).recipes[:1]
        half = Night(FORMAT, "20990101-000000-half", started, files, None, done)
        write_json(home / "nights" / half.id / "night.json", encode(half))
        return half

    def test_a_killed_night_goes_on_where_it_was(self, recipes: Path, tmp_path: Path) -> None:
        write(recipes, "zebra")
        half = self.half(recipes, tmp_path / "home", time.time() - 60)
        done = night(recipes, tmp_path / "home")
        assert (done.id, len(done.recipes), done.green) == (half.id, 2, True)
        assert done.recipes[0] == half.recipes[0], "what was finished is not done again"
        assert done.ended is not None

    def test_one_of_other_recipes_or_of_long_ago_does_not(
        self, recipes: Path, tmp_path: Path
    ) -> None:
        home = tmp_path / "home"
        half = self.half(recipes, home, time.time() - 60)
        assert unfinished_night(Home(home), half.asked) == half
        assert unfinished_night(Home(home), (*half.asked, "more.yaml")) is None
        shutil.rmtree(home / "nights")
        old = self.half(recipes, home, time.time() - 21 * 3600)
        assert unfinished_night(Home(home), old.asked) is None


def test_what_is_no_recipe_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such recipe"):
        recipe_files([tmp_path / "nowhere"])
    with pytest.raises(UsageError, match="no recipe"):
        recipe_files([tmp_path])


class TestMLflow:
    def test_the_baseline_is_an_alias_and_drift_is_told_from_the_history(
        self, recipes: Path, tmp_path: Path
    ) -> None:
        from mlflow import MlflowClient

        home = tmp_path / "home"
        for _ in range(3):
            assert night(recipes, home, track=True).green
        folder = max(Home(home).runs_of("small").glob("*/result.json")).parent
        assert accept_run(folder, Home(home)).untracked is None
        client = MlflowClient(tracking_uri=f"sqlite:///{home}/mlflow.db")
        version = client.get_model_version_by_alias("small", "baseline")
        assert version.tags["convkit.run"] == folder.name
        # A model three times as large: nothing fails but the figure against its history.
        wide = MODEL.replace(
            "return torch.tanh(self.scale(x))",
            "return torch.tanh(self.scale(x)) + self.more.sum() * 0",
        )
        wide = wide.replace(
            "super().__init__()\n",
            "super().__init__()\n        self.more = torch.nn.Parameter(torch.ones(4000))\n",
            1,
        )
        (recipes / "model.py").write_text(wide)
        (recipe,) = night(recipes, home, track=True).recipes
        assert recipe.status == "regression"
        assert any(drift.metric == "size_bytes" and drift.count >= 3 for drift in recipe.drifts)


def test_only_a_sound_run_is_accepted(recipes: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    assert find_baseline("small", Home(home)) is None
    folder = accepted(recipes, home)
    assert find_baseline("small", Home(home)) == folder
    flip_byte(folder / "models" / "ort" / "model.onnx")
    with pytest.raises(UsageError, match=r"not intact: models/ort/model\.onnx"):
        accept_run(folder, Home(home), track=False)
    write(recipes, "small", verify={"seed": 11, "tolerance": {"max_abs": 1e-30, "mean_abs": 0.0}})
    (failed,) = night(recipes, home).recipes
    with pytest.raises(UsageError, match="only a run that was verified"):
        accept_run(Home(home).runs_of("small") / failed.run, Home(home), track=False)


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
    assert {path.name for path in folder.iterdir()} == {"night.json", "night.md", "junit.xml"}
