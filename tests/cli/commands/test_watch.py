"""`convkit run --watch`: shows what an edit moved, waits out errors, and ends with Ctrl-C."""

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from other_processes import ended_with_the_test
from small_runs import convkit, write_recipe

from convkit.cli.commands import watch as command
from convkit.host.home import Home
from convkit.host.run.run_options import RunOptions
from convkit.host.run.watched_files import WatchedFiles
from convkit.protocol.errors import Interrupted, RecipeError, UsageError


@contextlib.contextmanager
def lines_of(process) -> Iterator[queue.Queue[str]]:
    """Yield the lines that a process prints, as they come."""
    found: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in process.stdout:
            found.put(line.rstrip())

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    yield found
    thread.join(10)


def until(lines: "queue.Queue[str]", text: str) -> list[str]:
    """Return the lines up to the first one with this text; fails if there is none in time."""
    found: list[str] = []
    while not found or text not in found[-1]:
        try:
            found.append(lines.get(timeout=120))
        except queue.Empty:
            pytest.fail(f"no {text!r} in {found}")
    return found


def test_an_edit_runs_again_and_shows_what_moved(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("FACTOR = 1.0\n")
    code = "from helper import FACTOR\n" + (
        write_recipe(tmp_path).parent / "model.py"
    ).read_text().replace("return torch.tanh", "return FACTOR * torch.tanh")
    recipe = write_recipe(tmp_path, code)
    arguments = ("run", recipe, "--watch", "--no-track", "--no-resident", "--toolchain", "host")
    process = convkit(*arguments, "--home", tmp_path / "home")
    with ended_with_the_test(process), lines_of(process) as lines:
        until(lines, "Ctrl-C ends")
        (tmp_path / "helper.py").write_text("FACTOR = 1.5\n")  # only provenance knows of it
        assert any("helper.py changed" in each for each in until(lines, "Ctrl-C ends"))
        (tmp_path / "helper.py").write_text("FACTOR = (\n")
        assert any("SyntaxError" in each for each in until(lines, "Ctrl-C ends"))
        (tmp_path / "helper.py").write_text("FACTOR = 1.5\n")
        assert any("ort: broken -> verified" in each for each in until(lines, "Ctrl-C ends"))
        recipe.write_text(recipe.read_text().partition("outputs:")[0])  # half saved
        text = "\n".join(until(lines, "Ctrl-C ends"))
        assert "error: " in text
        assert "recipe.yaml" in text.partition("error: ")[2]
        write_recipe(tmp_path, code, verify={"tolerance": {"max_abs": 1e-12}})
        shown = until(lines, "Ctrl-C ends")
        text = "\n".join(shown)
        assert "verify.tolerance.max_abs: 1e-05 -> 1e-12" in text
        assert "ort: verified -> failed" in text
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(20) == 1


@pytest.mark.parametrize("options", [["--json"], ["--repair"], ["--strict"]])
@pytest.mark.sampled(2)
def test_what_ends_with_one_run_is_refused(options: list[str], tmp_path: Path) -> None:
    process = convkit("run", write_recipe(tmp_path), "--watch", *options)
    with ended_with_the_test(process):
        text, _ = process.communicate(timeout=60)
    assert process.returncode == UsageError.exit_code
    assert f"leave out {options[0]}" in text


def test_an_interrupted_run_ends_with_the_code_of_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = iter([RecipeError("half saved"), Interrupted("Ctrl-C")])

    def run() -> None:
        raise next(runs)

    monkeypatch.setattr(WatchedFiles, "wait", lambda _: [tmp_path / "recipe.yaml"])
    options = RunOptions(write_recipe(tmp_path), Home(tmp_path / "home"))
    assert command.watch(options, run, silent=False) == RecipeError.exit_code
    assert "error: half saved" in capsys.readouterr().err
