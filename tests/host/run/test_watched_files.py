"""Waiting until a file that a run reads has changed: as editors save, and no sooner."""

import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from small_runs import write_recipe

from convkit.host.home import Home
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.run import watched_files
from convkit.host.run.watched_files import WatchedFiles, files_of, states_of


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, seconds in (("LOOK_SECONDS", 0.02), ("QUIET_SECONDS", 0.2), ("GONE_SECONDS", 0.6)):
        monkeypatch.setattr(watched_files, name, seconds)


def waited(watched: WatchedFiles, *saves: Callable[[], object]) -> list[Path]:
    """Return what is noticed while a thread saves, step by step, 0.05 s apart."""

    def save() -> None:
        for each in saves:
            time.sleep(0.05)
            each()

    thread = threading.Thread(target=save)
    thread.start()
    found = watched.wait()
    thread.join()
    return found


def test_a_file_that_is_replaced_is_one_change_of_what_is_then_there(tmp_path: Path) -> None:
    file, other, new = tmp_path / "a.yaml", tmp_path / "model.py", tmp_path / ".a.yaml.swp"
    file.write_text("old")
    other.write_text("same")
    watched = WatchedFiles(states_of([file, other]))
    saves = [
        lambda: new.write_text("half"),
        file.unlink,
        lambda: new.write_text("whole"),
        lambda: new.replace(file),
        lambda: file.write_text("formatted"),
    ]
    assert waited(watched, *saves) == [file]
    assert file.read_text() == "formatted"  # not noticed before the last of them
    assert watched.changed() == []


def test_a_file_that_stays_away_is_a_change_and_one_that_comes_back_is_none(tmp_path: Path) -> None:
    file, other = tmp_path / "a.yaml", tmp_path / "b.txt"
    file.write_text("a")
    other.write_text("b")
    watched = WatchedFiles(states_of([file, other]))
    away = tmp_path / "away"
    began = time.monotonic()
    moves = [
        lambda: file.rename(away),
        lambda: away.rename(file),
        lambda: time.sleep(0.4),
        other.unlink,
    ]
    assert waited(watched, *moves) == [other]
    assert time.monotonic() - began > 0.6


def test_what_changes_while_a_run_reads_it_is_noticed_after_it(tmp_path: Path) -> None:
    recipe, old, new = (tmp_path / name for name in ("a.yaml", "old.py", "new.py"))
    for file in (recipe, old, new):
        file.write_text("as it was")
    time.sleep(0.02)
    watched, began = WatchedFiles(states_of([recipe])), time.time()
    recipe.write_text("edited during the run")
    new.write_text("edited during the run")
    watched.follow([recipe, old, new], began)
    assert set(watched.changed()) == {recipe, new}


def test_a_recipe_is_watched_with_its_model_and_lock(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    (tmp_path / "helper.py").write_text("")
    found = files_of(load_recipe(recipe), None, Home(tmp_path / "home"))
    names = {"helper.py", "recipe.yaml", "recipe.lock", "model.py"}
    assert found == {tmp_path / name for name in names}
