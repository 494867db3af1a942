"""Messages about wrong options are about the option, not about the code that reads it."""

import re
from pathlib import Path

import pytest
import typer.main
from command_line import convkit

from convkit.cli.commands import bench, diagnose, report
from convkit.cli.input.command_groups import _ELSEWHERE
from convkit.cli.main import app
from convkit.protocol.errors import ConvkitError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("run", "a.yaml", "--toolchain", "hst"),
            "Invalid value for '--toolchain': 'hst' is not one of 'isolated', 'host'.",
        ),
        (
            ("run", "a.yaml", "--jobs", "many"),
            "Invalid value for '--jobs' / '-j': Input should be a valid integer",
        ),
    ],
)
def test_a_wrong_value(arguments: tuple[str, ...], message: str) -> None:
    done = convkit(*arguments)
    assert done.returncode == 2
    assert message in done.stderr


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("bench", "nope.yaml: no such file (recipes there: bert.yaml)"),
        ("diagnose", "notes.txt: is neither a recipe (.yaml), a model file (.onnx, "),
        ("report", "notes.txt: this file is not a run. Name a run's folder, or see convkit runs"),
    ],
)
def test_a_wrong_subject(
    command: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("no model")
    Path("bert.yaml").write_text("schema: 1\n")
    called = {
        "bench": lambda: bench.bench("nope.yaml", home=tmp_path / "home"),
        "diagnose": lambda: diagnose.diagnose("notes.txt", home=tmp_path / "home"),
        "report": lambda: report.report("notes.txt", home=tmp_path / "home"),
    }
    with pytest.raises(ConvkitError) as error:
        called[command]()
    assert message in str(error.value)


@pytest.mark.parametrize("command", ["init", "diagnose"])
def test_onnxruntime_s_own_format_is_named(command: str, tmp_path: Path) -> None:
    file = tmp_path / "model.ort"
    file.write_bytes(b"\x18\0\0\0ORTM")
    done = convkit(command, str(file))
    assert done.returncode == 2
    assert "onnxruntime's own format (.ort)" in done.stderr
    assert "Pass the .onnx file" in done.stderr


def test_a_word_that_is_no_command_names_the_one_that_does_it() -> None:
    done = convkit("evaluate", "recipe.yaml")
    assert done.returncode == 2
    assert "No such command 'evaluate'. Add `evaluate:` to the recipe" in done.stderr


def test_every_word_names_a_command_that_exists() -> None:
    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    for word, advice in _ELSEWHERE.items():
        assert word not in commands
        assert set(re.findall(r"`convkit (\w+)", advice)) <= set(commands)
