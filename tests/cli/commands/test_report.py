"""`convkit report`, on a run's folder; the browser is a script that notes what it is asked for."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from records import build_record
from run_folders import write_run

from convkit.cli.commands import report as reporting
from convkit.protocol.errors import ConvkitError, UsageError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_run(tmp_path / "home" / "results", build_record())


def report(folder: Path, *, open_it: bool = False, output: Path | None = None) -> None:
    reporting.report("bert", open_it=open_it, output=output, home=folder.parents[2])


def test_the_path_is_printed_and_the_browser_opens_it(folder: Path, tmp_path: Path) -> None:
    browser, noted = tmp_path / "browser", tmp_path / "noted"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{noted}"\n')
    browser.chmod(0o755)
    command = [sys.executable, "-m", "convkit.cli.main", "report", "bert", "--open", "--home"]
    done = subprocess.run(
        [*command, str(folder.parents[2])],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "BROWSER": f"{browser} %s"},
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{folder / 'report.html'}\n", "")
    assert noted.read_text().strip() == (folder / "report.html").as_uri()


def test_no_browser_opens_unasked(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _: pytest.fail("a browser was opened"))
    report(folder)
    assert capsys.readouterr().out == f"{folder / 'report.html'}\n"


def test_no_browser_is_an_error_that_names_the_file(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    with pytest.raises(UsageError, match=r"found no browser to open .*report\.html with"):
        report(folder, open_it=True)


def test_a_new_report_links_to_the_run_and_leaves_it_as_it_is(folder: Path, tmp_path: Path) -> None:
    before = (folder / "report.html").read_bytes()
    output = tmp_path / "new.html"
    report(folder, output=output)
    link = f"./home/results/bert/{folder.name}/models/ort-cpu/model.onnx"
    assert f'href="{link}"' in output.read_text()
    assert (tmp_path / link).is_file()
    assert (folder / "report.html").read_bytes() == before


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("home/results/bert/20251009-085320-3f9a/report.html", "is in the run's own folder"),
        ("home", "is a folder"),
        ("missing/new.html", "new.html"),
    ],
)
def test_what_cannot_be_written_is_an_error_with_its_place(
    folder: Path, tmp_path: Path, output: str, told: str
) -> None:
    with pytest.raises(ConvkitError, match=re.escape(told)):
        report(folder, output=tmp_path / output)


def test_a_run_without_a_report_says_how_to_make_one(folder: Path) -> None:
    (folder / "report.html").unlink()
    with pytest.raises(UsageError, match=r"report\.html does not exist\. .*--output FILE"):
        report(folder)
