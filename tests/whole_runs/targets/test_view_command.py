"""`convkit view` whole: a run, its graph, and a program that stands in for Model Explorer."""

import json
import sys
from pathlib import Path

import pytest
from faults.recipes import write_recipe
from typer.testing import CliRunner

from convkit.cli.commands import view
from convkit.cli.main import app
from convkit.host.audit.past_runs.run_integrity import Digester, check_folder
from convkit.host.home import Home
from convkit.host.record.provenance import read_provenance
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_folder import read_record
from convkit.host.run.run_options import RunOptions
from convkit.protocol.errors import UsageError

CODE = """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 16)
        self.last = torch.nn.Linear(16, 3)

    def forward(self, x):
        return self.last(torch.relu(self.first(x)))

def build():
    return Net()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a finished run."""
    place = tmp_path_factory.mktemp("view")
    recipe = write_recipe(
        place,
        code=CODE,
        axes={"batch": {"min": 1, "typical": 2, "max": 4}},
        inputs=[{"name": "x", "dtype": "float32", "shape": ["batch", 8]}],
        outputs=[{"name": "y", "dtype": "float32", "shape": ["batch", 3]}],
        name="small",
    )
    options = RunOptions(recipe, Home(place / "home"), toolchain="host", track=False)
    return run_recipe(options).folder


def viewed(folder: Path, *arguments: str, explorer: Path | None, patch: pytest.MonkeyPatch) -> str:
    """Run the command where `explorer` is installed; return what it prints.

    PATH stays as it is: a worker sees it, and one with another PATH would import torch anew.
    """
    patch.setattr(view, "_installed", lambda: str(explorer) if explorer else None)
    home = str(folder.parent.parent.parent)
    result = CliRunner().invoke(app, ["view", str(folder), *arguments, "--home", home])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """Return a program that stands in for Model Explorer: it writes down its arguments."""
    program = tmp_path / "bin" / "model-explorer"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@" > {tmp_path / "arguments"}\n')
    program.chmod(0o755)
    return program


def test_model_explorer_is_found_beside_python_and_on_path(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(program.with_name("python")))
    monkeypatch.setenv("PATH", "")
    assert view._installed() == str(program)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert view._installed() is None
    monkeypatch.setenv("PATH", str(program.parent))
    assert view._installed() == str(program)


def test_without_model_explorer_it_says_how_to_see_the_graph(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = viewed(folder, "ort", explorer=None, patch=monkeypatch)
    assert "pip install ai-edge-model-explorer" in output
    files = folder.with_name(f"{folder.name}.view") / "ort"
    graph = json.loads((files / "graph.json").read_text())["graphs"][0]
    spaces = {node["namespace"] for node in graph["nodes"]}
    assert spaces == {"", "first", "last"}
    layer = json.loads((files / "error.json").read_text())[graph["id"]]
    assert set(layer["results"]) <= {node["id"] for node in graph["nodes"]}
    assert max(each["value"] for each in layer["results"].values()) < 1e-5
    # The run's own folder is as the run left it.
    record, provenance = read_record(folder), read_provenance(folder)
    assert check_folder(folder, record, provenance, None, Digester()).problems == ()


def test_a_program_that_stands_in_for_model_explorer_gets_graph_and_layers(
    folder: Path, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = tmp_path / "out" / "precision.json"
    stale.parent.mkdir()
    stale.write_text("{}")
    kept = stale.with_name("kept.json")  # the folder is the user's
    kept.write_text("{}")
    arguments = ("ort", "-o", str(tmp_path / "out"), "--case", "smallest")
    viewed(folder, *arguments, explorer=program, patch=monkeypatch)
    graph, _, layers = (tmp_path / "arguments").read_text().strip().partition(" --node_data_paths=")
    assert graph == str(tmp_path / "out" / "graph.json")
    names = [Path(each).name for each in layers.split(",")]
    assert names == ["headroom.json", "error.json"]
    assert sorted(each.name for each in (tmp_path / "out").iterdir()) == sorted(
        ["graph.json", "kept.json", *names]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nope"], "nope: is not a target of this run; choose one of ort"),
        (["ort", "--case", "nope"], "--case nope: the run compared smallest"),
        (["ort", "-o", "{run}/view"], "is in the run's own folder"),
        (["ort", "-o", "{run}/result.json"], "is in the run's own folder"),
    ],
)
def test_mistakes_are_named(
    folder: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [each.replace("{run}", str(folder)) for each in arguments]
    with pytest.raises(UsageError) as error:
        viewed(folder, *given, explorer=None, patch=monkeypatch)
    assert message in str(error.value)
