"""Which folders of a home are runs."""

from pathlib import Path

import pytest
from answers import answer_for, command_line

from convkit.host.audit.past_runs.run_folders import run_folders
from convkit.host.audit.past_runs.run_history import Filter, list_runs
from convkit.host.home import Home

NIGHTLY = "20990101-021700-ab12"


@pytest.mark.parametrize("files", [("nightly.json", "junit.xml"), ("night.json",), ()])
def test_nightly_runs_are_no_damaged_runs(folder: Path, files: tuple[str, ...]) -> None:
    home = folder.parent.parent
    for number in range(10):
        nightly = home / "nights" / f"{NIGHTLY[:-1]}{number}"
        nightly.mkdir(parents=True)
        for name in files:
            (nightly / name).write_text("{}")
    assert run_folders(Home(home)) == [folder]
    assert [entry.status for entry in list_runs(Home(home), Filter())] == ["verified"]
    answer = answer_for("latest", home)
    assert (answer.run, answer.integrity) == (folder.name, "intact")
    code, output = command_line("audit", "latest", home=home)
    assert (code, "INTACT" in output) == (0, True)


def test_a_run_that_lost_its_files_is_still_a_run(folder: Path) -> None:
    for name in ("result.json", "provenance.json"):
        (folder / name).unlink()
    assert run_folders(Home(folder.parent.parent)) == [folder]


def test_runs_of_a_recipe_named_nights_are_runs(folder: Path) -> None:
    home = folder.parent.parent
    folder.parent.rename(home / "nights")
    assert [each.name for each in run_folders(Home(home))] == [folder.name]
