"""`convkit init` as a new user types it."""

import json
import sys

import pytest
from command_line import convkit

from convkit.host.recipe.reading.loading import load_recipe

RANKER = """
import torch

class Ranker(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 3)

    def forward(self, features):
        return self.linear(features)

def build():
    return Ranker()
"""


@pytest.fixture
def terminal(monkeypatch):
    """Return a function that answers the questions which a terminal would be asked."""
    asked: list[str] = []

    def answer(*answers: str) -> list[str]:
        left = list(answers)

        def prompt(text: str, default: str | None = None) -> str:
            asked.append(text)
            return left.pop(0) or (default or "")

        monkeypatch.setattr("typer.prompt", prompt)
        monkeypatch.setattr("convkit.cli.input.questions.is_terminal", lambda: True)
        return asked

    return answer


def test_a_folder_that_is_not_there_is_named_before_anything_is_tried(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(RANKER, encoding="utf-8")
    done = convkit("init", "net.py:build", "-o", "recipes/ranker.yaml", "--toolchain", "host")
    assert done.returncode == 2
    assert "there is no folder recipes for ranker.yaml; create it first" in done.stderr
    assert "looking" not in done.stderr


def test_a_draft_of_own_code_verifies_without_an_edit(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(RANKER, encoding="utf-8")
    options = ("--toolchain", "host", "--home", tmp_path / "home")
    done = convkit("init", "net.py:build", "-o", "ranker.yaml", *options)
    assert done.returncode == 0, done.stderr
    assert "looking for inputs" in done.stderr
    text = (tmp_path / "ranker.yaml").read_text(encoding="utf-8")
    assert text.startswith("# yaml-language-server: $schema=recipe.schema.json\n")
    assert "transformers" not in text
    json.loads((tmp_path / "recipe.schema.json").read_text(encoding="utf-8"))
    ran = convkit("run", "ranker.yaml", "--no-track", *options)
    assert ran.returncode == 0, ran.stdout


@pytest.mark.thorough
def test_a_model_that_does_not_load_writes_no_recipe(tmp_path):
    broken = RANKER.replace("torch.nn.Linear(6, 3)", "torch.nn.Linear(6)")
    (tmp_path / "net.py").write_text(broken, encoding="utf-8")
    recipe = tmp_path / "r.yaml"
    done = convkit(
        "init", f"{tmp_path / 'net.py'}:build", "-o", recipe,
        "--toolchain", "host", "--home", tmp_path / "home",
    )  # fmt: skip
    assert done.returncode == 2
    assert "net.py:build raised TypeError" in done.stderr
    assert not recipe.exists()


def test_without_a_terminal_nothing_is_asked():
    done = convkit("init")
    assert done.returncode == 2
    assert "name a model: convkit init MODEL" in done.stderr


def test_on_a_terminal_the_model_and_the_file_are_asked_for(tmp_path, monkeypatch, terminal):
    monkeypatch.chdir(tmp_path)
    asked = terminal("bert", "")
    assert convkit("init").returncode == 0
    assert asked == ["Model", "Write the recipe to"]
    assert load_recipe(tmp_path / "recipe.yaml").recipe.model.config.architecture == "bert"


def test_on_a_terminal_a_hub_model_is_asked_for_its_full_commit(monkeypatch, terminal):
    from convkit.cli.input.questions import ask_for_missing

    asked = terminal("main", "ABCDEF0123" * 4)
    model, output = ask_for_missing("owner/name", None)
    assert model == "owner/name@" + "abcdef0123" * 4
    assert output is None  # a named model is printed, as without a terminal
    assert asked == ["Commit (40 hexadecimal digits)"] * 2  # `main` is not a commit


def test_a_terminal_is_one_only_if_both_ends_are(monkeypatch):
    from convkit.cli.input.questions import is_terminal

    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False, raising=False)
    assert not is_terminal()
