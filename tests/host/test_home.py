"""Where runs lie in a home, in today's layout and in that of earlier releases."""

from pathlib import Path

import pytest

from convkit.host.home import Home, home_around, is_run
from convkit.host.run.run_selection import find_run
from convkit.host.toolchain.environments.pruning import leftovers, prune

OLD, NEW = "20250101-000000-aaaa", "20260101-000000-bbbb"
# What a home holds besides runs: before, a recipe of that name put its runs among it.
COLLIDING = [
    "environments",
    "store",
    "nights",
    "packages",
    "scratch",
    "runs",
    "results",
    "mlartifacts",
]


def finished(folder: Path) -> Path:
    folder.mkdir(parents=True)
    (folder / "result.json").write_text("{}")
    return folder


@pytest.mark.parametrize("name", [*COLLIDING, "mlflow.db", "mlflow.lock", "mlflow-ui.log"])
def test_a_recipe_may_be_named_like_anything_in_the_home(tmp_path: Path, name: str) -> None:
    home = Home(tmp_path)
    (tmp_path / "mlflow.db").write_bytes(b"")
    folder = finished(home.runs_of(name) / NEW)
    assert folder.parent.parent == tmp_path / "results"
    assert home.run_folders() == [folder]
    assert find_run(name, home) == folder
    prune(tmp_path, unused_seconds=-1.0, resolutions=True)
    assert is_run(folder)
    assert home_around(folder) == tmp_path


@pytest.mark.parametrize("name", [*COLLIDING, "bert"])
def test_runs_of_earlier_releases_are_still_found_and_never_pruned(
    tmp_path: Path, name: str
) -> None:
    home = Home(tmp_path)
    (tmp_path / "store" / "objects").mkdir(parents=True)
    old = finished(tmp_path / name / OLD)
    new = finished(home.runs_of(name) / NEW)
    assert home.run_folders() == [new, old]
    assert leftovers(tmp_path) == ()
    prune(tmp_path, unused_seconds=-1.0)
    assert is_run(old)
    assert home_around(old) == tmp_path
    assert find_run(f"{name}/{OLD}", home) == old


def test_nightly_runs_scratch_space_and_environments_are_no_runs(tmp_path: Path) -> None:
    for folder in ("nights", "scratch", "environments"):
        (tmp_path / folder / NEW).mkdir(parents=True)
    (tmp_path / "nights" / NEW / "nightly.json").write_text("{}")
    assert Home(tmp_path).run_folders() == []
    assert not is_run(tmp_path / "nights" / NEW)


def test_a_run_whose_files_are_gone_is_listed_by_its_name(tmp_path: Path) -> None:
    folder = Home(tmp_path).runs_of("bert") / NEW
    folder.mkdir(parents=True)
    assert Home(tmp_path).run_folders() == [folder]


def test_a_home_named_runs_beside_a_folder_named_store(tmp_path: Path) -> None:
    (tmp_path / "store" / "objects").mkdir(parents=True)
    home = tmp_path / "runs"
    (home / "store" / "objects").mkdir(parents=True)
    assert home_around(finished(home / "bert" / OLD)) == home
    assert home_around(finished(Home(home).runs_of("bert") / NEW)) == home
