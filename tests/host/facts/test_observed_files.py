"""Files that a factory reads: part of the stage's key and of the provenance, once seen."""

import json
import os
import shutil
import threading
import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from convkit.host.audit.checks.recorded_inputs import changed_sources
from convkit.host.facts.planning_facts import gather
from convkit.host.facts.version_sources import recorded_tools
from convkit.host.home import Home
from convkit.host.plan.stages import plan_stages
from convkit.host.processes.progress_events import SilentListener
from convkit.host.recipe.reading.loading import load_recipe
from convkit.host.record.provenance import read_provenance
from convkit.host.run.plan_command import forecast
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.host.stages.stage_runner import StageRunner
from convkit.host.store.store import Store
from convkit.protocol.errors import RecipeError

MODEL = """
import json
from pathlib import Path

import numpy
import torch
from safetensors.torch import load_file

from helper import Small

HERE = Path(__file__).parent

def build():
    model = Small(json.loads((HERE / "settings.json").read_text())["width"])
    model.load_state_dict(torch.load(HERE / "weights" / "weights.pt"))
    model.shift = torch.nn.Parameter(load_file(HERE / "weights" / "shift.safetensors")["shift"])
    model.factor = float(numpy.load(HERE.parent / "shared" / "factor.npy"))
    model.scripted = float(torch.jit.load(str(HERE / "scripted.pt"))(torch.ones(1)))
    return model
"""
HELPER = """
import torch

class Small(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = torch.nn.Linear(4, width)
        self.shift = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.tanh(self.scale(x) * self.factor * self.scripted + self.shift)
"""
READ = {
    "../shared/factor.npy",
    "helper.py",
    "scripted.pt",
    "settings.json",
    "weights/shift.safetensors",
    "weights/weights.pt",
}
RECIPE: dict[str, Any] = {
    "schema": 1,
    "name": "small",
    "model": {"factory": "model.py:build"},
    "tools": {"python": "3.11"},
    "export": {"exporter": "torchscript", "opset": 17},
    "axes": {"batch": {"min": 1, "typical": 3, "max": 5}},
    "inputs": [{"name": "x", "dtype": "float32", "shape": ["batch", 4]}],
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 3]}],
    "targets": {"ort": {"runtime": "onnxruntime"}},
}
CHANGES: dict[str, Any] = {"verify": {"seed": 1, "tolerance": {"max_abs": 1e-5}}}


def write_all(folder: Path, factor: float = 2.0) -> Path:
    import numpy as np
    import torch
    from safetensors.torch import save_file

    recipes, shared = folder / "recipes", folder / "shared"
    for place in (recipes / "weights", shared):
        place.mkdir(parents=True, exist_ok=True)
    (recipes / "model.py").write_text(MODEL)
    (recipes / "helper.py").write_text(HELPER)
    (recipes / "unread.txt").write_text("not a part of the model")
    (recipes / "settings.json").write_text('{"width": 3}')
    torch.manual_seed(0)
    weights = {"scale.weight": torch.randn(3, 4), "scale.bias": torch.randn(3)}
    torch.save(weights | {"shift": torch.zeros(3)}, recipes / "weights" / "weights.pt")
    save_file({"shift": torch.randn(3)}, recipes / "weights" / "shift.safetensors")
    np.save(shared / "factor.npy", np.float32(factor))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # it is still how files are opened in C
        torch.jit.save(torch.jit.script(torch.nn.Identity()), str(recipes / "scripted.pt"))
    path = recipes / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE | CHANGES, sort_keys=False))
    return path


def run(folder: Path) -> RunOutcome:
    options = RunOptions(
        folder / "recipes" / "recipe.yaml", Home(folder / "home"), toolchain="host", track=False
    )
    return run_recipe(options)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunOutcome]:
    """A recipe that has been run once, and its run; left as they are by all tests."""
    folder = tmp_path_factory.mktemp("opened")
    write_all(folder)
    return folder, run(folder)


@pytest.fixture
def folder(made: tuple[Path, RunOutcome], tmp_path: Path) -> Path:
    """A copy, which a test may change."""
    for name in ("recipes", "shared", "home"):
        shutil.copytree(made[0] / name, tmp_path / name)
    return tmp_path


def dependencies(outcome: RunOutcome) -> dict[str, dict[str, str]]:
    found = read_provenance(outcome.folder).dependencies
    return {item.name: item.digest for item in found if item.kind == "file"}


def test_provenance_lists_every_file_that_the_factory_read(made: tuple[Path, RunOutcome]) -> None:
    _, outcome = made
    assert outcome.record.status == "verified"
    assert set(dependencies(outcome)) == READ
    assert str(made[0]) not in json.dumps(sorted(dependencies(outcome)))


def test_nothing_changed_is_up_to_date(made: tuple[Path, RunOutcome]) -> None:
    again = run(made[0])
    assert again.up_to_date
    assert again.folder == made[1].folder


@pytest.mark.parametrize("name", sorted(READ))
def test_a_changed_file_is_a_reason_to_run(folder: Path, name: str) -> None:
    path = folder / "recipes" / name
    status = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    rows = {
        row.stage: row
        for row in forecast(folder / "recipes" / "recipe.yaml", Home(folder / "home"), (), "host")
    }
    for stage in ("export", "reference"):
        assert rows[stage].state == "run"
        assert f"model_files.{name} changed" in rows[stage].reason


@pytest.mark.thorough
def test_a_home_behind_a_link_is_no_source_and_what_lies_beside_it_is(
    made: tuple[Path, RunOutcome], tmp_path: Path
) -> None:
    real, seen = tmp_path / "real", tmp_path / "seen"
    for name in ("recipes", "shared", "home"):
        shutil.copytree(made[0] / name, real / name)
    seen.symlink_to(real)
    factory = real / "recipes" / "model.py"
    factory.write_text(factory.read_text() + "\n# so that the model is loaded again\n")
    first = run(seen)
    states = {stage.id: stage.status for stage in first.record.stages}
    assert (states["export"], states["reference"]) == ("done", "done")
    assert set(dependencies(first)) == READ
    assert run(seen).up_to_date
    (real / "recipes" / "settings.json").write_text('{"width": 3, "more": 1}')
    assert not run(seen).up_to_date


@pytest.mark.thorough
def test_replaced_weights_and_helper_are_run_and_recorded(folder: Path) -> None:
    before = dependencies(run(folder))
    write_all(folder, factor=3.0)
    helper = folder / "recipes" / "helper.py"
    helper.write_text(helper.read_text().replace("tanh", "sin"))
    after = run(folder)
    assert not after.up_to_date
    assert {stage.status for stage in after.record.stages} == {"done"}
    changed = {name for name, digest in dependencies(after).items() if digest != before[name]}
    assert {"helper.py", "../shared/factor.npy"} <= changed
    assert run(folder).up_to_date


@pytest.mark.thorough
def test_a_file_that_goes_back_is_known_again(folder: Path) -> None:
    settings = folder / "recipes" / "settings.json"
    settings.write_text('{"width": 3, "more": 1}')
    assert {stage.status for stage in run(folder).record.stages} >= {"done"}
    settings.write_text('{"width": 3}')
    again = run(folder)
    assert again.up_to_date
    assert again.folder.name == min(each.name for each in Home(folder / "home").run_folders())


def test_what_the_factory_did_not_read_is_no_reason_to_run(folder: Path) -> None:
    (folder / "recipes" / "unread.txt").write_text("changed")
    assert run(folder).up_to_date


def test_another_home_names_what_changed_since_the_run(folder: Path, tmp_path: Path) -> None:
    (folder / "recipes" / "settings.json").write_text('{"width": 3, "more": 1}')
    loaded = load_recipe(folder / "recipes" / "recipe.yaml")
    elsewhere = Home(tmp_path / "elsewhere")
    facts = gather(loaded, plan_stages(loaded.recipe), elsewhere, "host", recorded_tools({}))
    (run_folder,) = Home(folder / "home").run_folders()
    (changed,) = changed_sources(run_folder, loaded, facts, elsewhere)
    assert changed.startswith("file settings.json: sha256 ")


@pytest.mark.thorough
def test_declared_files_are_part_of_the_key_whether_read_or_not(folder: Path) -> None:
    recipe = folder / "recipes" / "recipe.yaml"
    content = yaml.safe_load(recipe.read_text())
    content["model"] = {"factory": "model.py:build", "files": ["./unread.txt", "settings.json"]}
    recipe.write_text(yaml.safe_dump(content, sort_keys=False))
    declared = run(folder)
    assert set(dependencies(declared)) == READ | {"unread.txt"}
    assert run(folder).up_to_date
    (folder / "recipes" / "unread.txt").write_text("changed")
    after = run(folder)
    reasons = {stage.id: stage.reason for stage in after.record.stages}
    assert reasons["export"] == "model_files.unread.txt changed"
    assert dependencies(after)["unread.txt"] != dependencies(declared)["unread.txt"]


def test_a_declared_file_that_is_missing_is_refused_by_its_place(folder: Path) -> None:
    recipe = folder / "recipes" / "recipe.yaml"
    content = yaml.safe_load(recipe.read_text())
    content["model"] = {"factory": "model.py:build", "files": ["setings.json"]}
    recipe.write_text(yaml.safe_dump(content, sort_keys=False))
    with pytest.raises(RecipeError, match=r"model\.files.*perhaps you meant 'settings.json'"):
        run(folder)


CHANGING = """
from pathlib import Path

import torch

def build():
    path = Path(__file__).with_name("settings.json")
    path.read_text()
    path.chmod(0o600)  # whoever changes a file changes its status
    return torch.nn.Linear(4, 3)
"""


def test_a_file_that_changes_while_it_is_read_breaks_the_stage(folder: Path) -> None:
    (folder / "recipes" / "model.py").write_text(CHANGING)
    outcome = run(folder)
    export = next(stage for stage in outcome.record.stages if stage.id == "export")
    assert outcome.record.exit_code != 0
    assert export.status == "broken"
    assert "settings.json: changed while the stage was reading it" in (export.error or "")


def test_a_run_that_waited_for_another_uses_what_that_one_found(tmp_path: Path) -> None:
    loaded = load_recipe(write_all(tmp_path))
    home = Home(tmp_path / "home")
    stages = plan_stages(loaded.recipe)
    before = gather(loaded, stages, home, "host", recorded_tools({}))
    made = run(tmp_path)
    runner = StageRunner(
        loaded, before, home, Store(home.store), SilentListener(), threading.Event()
    )
    settled = runner.settle(stages[0], {})
    assert (settled.report.id, settled.report.status) == ("export", "hit")
    assert settled.report.key == made.record.stages[0].key
