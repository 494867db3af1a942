"""Commands that take long say what they do."""

import contextlib
import io
import re
import time

import pytest
from other_processes import soon

from convkit.cli.output import waiting_messages as module
from convkit.cli.output.waiting_messages import waiting


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.02)


@contextlib.contextmanager
def standard_error():
    """Yield a function that returns what was said so far, also while a thread writes."""
    stream = io.StringIO()
    with contextlib.redirect_stderr(stream):
        yield stream.getvalue


def test_what_takes_long_is_told_as_one_line(capsys):
    with standard_error() as shown:
        with waiting("checking files"):
            assert soon(shown)
        assert shown() == "checking files ...\n"
    assert capsys.readouterr().out == ""


def test_elsewhere_it_is_said_again(monkeypatch):
    monkeypatch.setattr(module, "REPEAT_SECONDS", 0.6)
    with standard_error() as shown, waiting("checking files") as say:
        assert soon(lambda: "checking files (1 s)" in shown())
        say("comparing")
        assert soon(lambda: re.search(r"comparing\ncomparing \([2-9] s\)", shown()))


def test_steps_that_take_turns_and_details_are_no_lines(monkeypatch):
    monkeypatch.setattr(module, "REPEAT_SECONDS", 60)
    with standard_error() as shown, waiting("looking") as say:
        for run in range(900):
            say(f"trying sizes, run {run}: batch {run}")
            say("tracing")
        assert shown() == "trying sizes, run 0: batch 0\ntracing\n"


def test_a_terminal_gets_a_clock(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with standard_error() as shown, waiting("checking files"):
        assert soon(lambda: re.search(r"checking files, \d+ s", shown()))


def test_what_is_quick_says_nothing(capsys, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 60)
    with waiting("checking files"):
        pass
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0)
    with waiting("checking files", quiet=True):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_what_comes_next_is_a_line_of_its_own(capsys):
    with waiting("reading") as say:
        say("comparing")
        time.sleep(0.2)
    assert capsys.readouterr().err == "comparing\n"
    with waiting("reading", quiet=True) as say:
        say("comparing")
    assert capsys.readouterr().err == ""


def test_on_a_terminal_it_takes_the_place_of_the_text(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with standard_error() as shown, waiting("reading") as say:
        assert soon(shown)
        say("comparing [bold]")
        assert soon(lambda: re.search(r"comparing \[bold\], \d+ s", shown()))


def test_an_error_ends_it_too(capsys):
    with pytest.raises(ValueError, match="no"), waiting("checking"):
        raise ValueError("no")
    assert capsys.readouterr().err == ""
