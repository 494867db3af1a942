"""What a factory asks the machine besides reading files: a changed answer runs stages again."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from test_observed_files import CHANGES, RECIPE, run

from convkit.host.facts.observed_files import _as_spelled
from convkit.host.home import Home
from convkit.host.run.plan_command import forecast

MODEL = """
import glob
import os
import subprocess
from pathlib import Path

import torch

HERE = Path(__file__).parent

class Small(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x)

def build():
    scale = 1.0
    if os.path.exists(HERE / "best.txt"):
        scale += 1
    if (HERE / "folder" / "flag").is_file():
        scale += 2
    try:
        scale += float((HERE / "tried.txt").read_text())
    except FileNotFoundError:
        pass
    newest = max(glob.glob(str(HERE / "*.pt")), key=os.path.getmtime)
    scale += float(newest.endswith("b.pt"))
    scale += len(os.listdir(HERE / "listed"))
    scale += len(list(HERE.glob("matched/*.bin")))
    scale += float(os.readlink(HERE / "latest") == "b.pt")
    scale += float(os.environ.get("HF_SCALE", 0))
    subprocess.run(["true"])
    torch.manual_seed(0)
    model = Small(4, 3)
    model.weight.data.mul_(scale / 4)
    return model
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe that has been run once; left as it is by all tests."""
    import yaml

    folder = tmp_path_factory.mktemp("lookups")
    recipes = folder / "recipes"
    for name in ("folder", "listed", "matched"):
        (recipes / name).mkdir(parents=True)
    for number, name in enumerate(("a.pt", "b.pt")):
        (recipes / name).write_bytes(b"weights")
        os.utime(recipes / name, (1e9 + number, 1e9 + number))
    (recipes / "latest").symlink_to("a.pt")
    (recipes / "model.py").write_text(MODEL)
    (recipes / "recipe.yaml").write_text(yaml.safe_dump(RECIPE | CHANGES, sort_keys=False))
    assert run(folder).record.exit_code == 0
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    """A copy of it, with the times of files and the links."""
    for name in ("recipes", "home"):
        shutil.copytree(made / name, tmp_path / name, symlinks=True)
    return tmp_path


def reasons(folder: Path) -> dict[str, str]:
    """Return why the stages that load the model would run; empty if they would not."""
    rows = forecast(folder / "recipes" / "recipe.yaml", Home(folder / "home"), (), "host")
    loading = [row for row in rows if row.stage in ("export", "reference")]
    assert len(loading) == 2
    return {row.stage: row.reason for row in loading if row.state == "run"}


def write(name: str) -> Callable[[Path], object]:
    return lambda recipes: (recipes / name).write_text("1")


def newer(recipes: Path) -> None:
    os.utime(recipes / "a.pt", (2e9, 2e9))


def turned(recipes: Path) -> None:
    (recipes / "latest").unlink()
    (recipes / "latest").symlink_to("b.pt")


def test_a_program_is_named_alike_wherever_a_recipe_is(made: Path) -> None:
    remembered = (made / "home" / "store" / "opened").glob("*.json")
    texts = [place.read_text() for place in remembered]
    assert ['"unseen:true"' in text for text in texts] == [True, True], texts


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (write("best.txt"), "exists:best.txt changed: not there -> file"),
        (write("folder/flag"), "exists:folder/flag changed: not there -> file"),
        (write("tried.txt"), "exists:tried.txt changed: not there -> file"),
        (write("c.pt"), "matches:*.pt changed"),
        (newer, "modified:a.pt changed"),
        (write("listed/one"), "listing:listed changed"),
        (write("matched/one.bin"), "matches:matched/*.bin changed"),
        (turned, "link:latest changed"),
    ],
)
def test_another_answer_runs_the_stages_again(
    folder: Path, change: Callable[[Path], object], named: str
) -> None:
    assert reasons(folder) == {}
    change(folder / "recipes")
    found = reasons(folder)
    assert set(found) == {"export", "reference"}
    assert all(f"model_files.{named}" in reason for reason in found.values())


def test_a_variable_that_the_model_reads_is_part_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_OTHER", "1")
    monkeypatch.setenv("SCALE", "1")  # workers do not see it
    assert reasons(folder) == {}
    monkeypatch.setenv("HF_SCALE", "1")
    found = reasons(folder)
    assert all("variable:HF_SCALE changed" in reason for reason in found.values())
    assert len(found) == 2


@pytest.mark.parametrize(
    "change",
    [
        write("log.txt"),
        write("matched/one.txt"),
        write("listed/.one.swp"),
        lambda recipes: (recipes / "runs" / "store" / "stages").mkdir(parents=True),
        lambda recipes: os.utime(recipes / "model.py", (2e9, 2e9)),
        lambda recipes: (recipes / "__pycache__").mkdir(),
    ],
)
def test_what_nobody_asked_for_is_none_of_it(
    folder: Path, change: Callable[[Path], object]
) -> None:
    change(folder / "recipes")
    assert reasons(folder) == {}


@pytest.mark.thorough
def test_files_in_the_users_cache_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = folder / "user"
    weights = home / ".cache" / "clip" / "w.txt"
    weights.parent.mkdir(parents=True)
    weights.write_text("2.0")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    code = MODEL.replace(
        "scale = 1.0", "scale = float(open(os.path.expanduser('~/.cache/clip/w.txt')).read())"
    )
    (folder / "recipes" / "model.py").write_text(code)
    assert run(folder).record.exit_code == 0
    assert reasons(folder) == {}
    weights.write_text("4.0")
    found = reasons(folder)
    assert len(found) == 2
    assert all("model_files.cache:clip/w.txt changed" in reason for reason in found.values())


def test_a_file_is_named_by_the_links_on_the_way_to_it(tmp_path: Path) -> None:
    recipes, weights = tmp_path / "recipes", tmp_path / "a" / "w.txt"
    for folder in (recipes, weights.parent):
        folder.mkdir()
    weights.write_text("2")
    current = tmp_path / "current"
    current.symlink_to("a")
    reached = str(current / "w.txt")
    # The kernel names the file itself, which does not say that the link led to it.
    assert _as_spelled([str(weights)], recipes) == [str(weights)]
    assert _as_spelled([str(weights), reached], recipes) == [reached]
    # A link to the recipe's own folder is another machine's.
    seen = tmp_path / "seen"
    seen.symlink_to(recipes)
    (recipes / "own.txt").write_text("1")
    assert _as_spelled([str(seen / "own.txt")], recipes) == [str(recipes / "own.txt")]
