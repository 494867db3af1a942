"""Commands that take long say what they do."""

import re
import time

import pytest

from convkit.cli import waiting as module
from convkit.cli.waiting import waiting


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0.02)


def test_what_takes_long_is_told_as_one_line(capsys):
    with waiting("checking files"):
        time.sleep(0.3)
    captured = capsys.readouterr()
    assert captured.err == "checking files ...\n"
    assert captured.out == ""


def test_a_terminal_gets_a_clock(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    with waiting("checking files"):
        time.sleep(0.7)
    assert re.search(r"checking files, \d+ s", capsys.readouterr().err)


def test_what_is_quick_says_nothing(capsys, monkeypatch):
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 60)
    with waiting("checking files"):
        pass
    monkeypatch.setattr(module, "PATIENCE_SECONDS", 0)
    with waiting("checking files", quiet=True):
        time.sleep(0.05)
    assert capsys.readouterr().err == ""


def test_an_error_ends_it_too(capsys):
    with pytest.raises(ValueError, match="no"), waiting("checking"):
        raise ValueError("no")
    assert capsys.readouterr().err == ""
