"""`convkit runs`: which runs are listed, in which order, and that damaged ones are."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from answers import command_line
from records import STARTED, build_record, verified_record
from run_folders import write_built_run, write_run
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.audit.past_runs.later_records import (
    Acceptance,
    Reproduction,
    write_acceptance,
    write_reproduction,
)
from convkit.host.audit.past_runs.run_history import Filter, list_runs, parse_date, parse_tools
from convkit.host.home import Home, home_around
from convkit.host.run.run_options import RunOutcome
from convkit.host.run.run_selection import find_run
from convkit.protocol.errors import UsageError

DAY = 86_400.0
NEW, OLD, OTHER = "20251010-085320-0001", "20251009-085320-3f9a", "20251011-085320-0002"


def with_onnxruntime(record, version: str):
    stages = tuple(
        (
            dataclasses.replace(stage, versions={**stage.versions, "onnxruntime": version})
            if stage.target
            else stage
        )
        for stage in record.stages
    )
    return dataclasses.replace(record, stages=stages)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Three runs: one that failed under two onnxruntimes, a later verified one, another recipe's on
    the day after.
    """
    write_run(tmp_path, build_record())
    write_run(tmp_path, dataclasses.replace(verified_record(), id=NEW, started=STARTED + DAY))
    vit = dataclasses.replace(verified_record(), id=OTHER, recipe="vit", started=STARTED + 2 * DAY)
    write_run(tmp_path, with_onnxruntime(vit, "1.22.1"))
    (tmp_path / "store" / "objects").mkdir(parents=True)
    return tmp_path


def listed(home: Path, **wanted) -> list[str]:
    return [entry.run for entry in list_runs(Home(home), Filter(**wanted))]


def test_all_runs_newest_first(home: Path) -> None:
    assert listed(home) == [OTHER, NEW, OLD]


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({"recipe": "bert"}, [NEW, OLD]),
        ({"recipe": "nothing"}, []),
        ({"target": "ort-cuda"}, [OLD]),
        ({"target": "ort-cpu"}, [OTHER, NEW, OLD]),
        ({"verdict": "failed"}, [OLD]),
        ({"verdict": "verified"}, [OTHER, NEW]),
        ({"verdict": "broken"}, []),
        ({"target": "ort-cpu", "verdict": "verified"}, [OTHER, NEW, OLD]),
        ({"target": "ort-cuda", "verdict": "skipped"}, [OLD]),
        ({"since": STARTED + 1}, [OTHER, NEW]),
        ({"until": STARTED + 1}, [OLD]),
        ({"since": STARTED + 1, "until": STARTED + DAY + 1}, [NEW]),
    ],
)
def test_filters(home: Path, wanted, found: list[str]) -> None:
    assert listed(home, **wanted) == found


@pytest.mark.parametrize(
    ("tools", "found"),
    [
        (["onnxruntime==1.21.*"], [NEW, OLD]),
        (["onnxruntime==1.22.1"], [OTHER]),
        (["onnxruntime<1.22"], [NEW, OLD]),
        (["ONNXRuntime>=1.22,<1.30"], [OTHER]),
        (["onnxruntime"], [OTHER, NEW, OLD]),
        (["onnxruntime==1.21.*", "torch==2.13.*"], [NEW, OLD]),
        (["onnxruntime==1.21.*", "torch==2.12.*"], []),
        (["tensorrt"], []),
    ],
)
def test_tools_are_matched_against_the_recorded_versions(
    home: Path, tools: list[str], found: list[str]
) -> None:
    assert listed(home, tools=parse_tools(tools)) == found


def test_a_local_version_and_one_that_is_none(tmp_path: Path) -> None:
    write_run(tmp_path, with_onnxruntime(build_record(), "1.21.0+cpu"))
    write_run(tmp_path, with_onnxruntime(build_record(id=NEW), "built by hand"))
    assert listed(tmp_path, tools=parse_tools(["onnxruntime==1.21.0"])) == [OLD]
    assert listed(tmp_path, tools=parse_tools(["onnxruntime"])) == [NEW, OLD]


def test_of_a_target_only_its_own_tools_count(home: Path) -> None:
    tools = parse_tools(["onnxruntime==1.21.*"])
    assert listed(home, target="ort-optimized", tools=tools) == []
    assert listed(home, target="ort-optimized", tools=parse_tools(["torch"])) == [
        OLD
    ]  # the shared export's


@pytest.mark.parametrize(
    "text", ["==1.21", "onnxruntime=1.21", "", "torch[x]==2", "torch; python_version<'3'"]
)
def test_what_is_no_tool_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--tool"):
        parse_tools([text])


def test_dates() -> None:
    assert parse_date("--since", None) is None
    assert parse_date("--since", "1970-01-02") == DAY
    assert parse_date("--until", "1970-01-02", end=True) == 2 * DAY
    assert parse_date("--until", "1970-01-02T06:00", end=True) == 1.25 * DAY
    assert parse_date("--since", "1970-01-02T06:00+06:00") == DAY
    with pytest.raises(UsageError, match="--since yesterday"):
        parse_date("--since", "yesterday")


DAMAGES = {
    "result.json spoilt": lambda folder: (folder / "result.json").write_text("{"),
    "result.json of another format": (
        lambda folder: (folder / "result.json").write_text('{"format": 99}')
    ),
    "result.json gone": lambda folder: (folder / "result.json").unlink(),
    "everything gone": lambda folder: [
        path.unlink() for path in folder.rglob("*") if path.is_file()
    ],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_listed_as_damaged(home: Path, damage: str) -> None:
    DAMAGES[damage](home / "bert" / NEW)
    entries = list_runs(Home(home), Filter(verdict="verified", tools=parse_tools(["tensorrt"])))
    assert [(entry.run, entry.status) for entry in entries] == [(NEW, "damaged")]
    assert entries[0].problem
    assert listed(home) == [OTHER, NEW, OLD]
    assert listed(home, recipe="vit") == [OTHER]
    assert listed(home, until=STARTED + 1) == [OLD]
    done = CliRunner().invoke(app, ["runs", "--home", str(home)], env={"COLUMNS": "160"})
    assert done.exit_code == 0
    assert any({NEW, "damaged"} <= set(each.split()) for each in done.output.splitlines())
    problem = "".join(entries[0].problem.split())
    assert problem[:12] in "".join(done.output.split())


def test_what_came_after_is_shown_and_a_damaged_word_of_it_as_well(home: Path) -> None:
    folder = home / "bert" / OLD
    write_acceptance(folder, Acceptance(OLD, STARTED))
    write_reproduction(folder, Reproduction(OLD, STARTED + 1, "BIT_IDENTICAL", {}))
    write_reproduction(folder, Reproduction(OLD, STARTED + 9, "NUMERIC_OK", {}))
    entry = list_runs(Home(home), Filter())[-1]
    assert (entry.accepted, entry.reproduced, entry.remarks) == (True, "NUMERIC_OK", ())
    assert listed(home) == [OTHER, NEW, OLD]  # such files are not runs
    (home / "bert" / f"{OLD}.accepted.json").write_text("{")
    entry = list_runs(Home(home), Filter())[-1]
    assert (entry.accepted, len(entry.remarks)) == (False, 1)


def test_the_command_line(home: Path) -> None:
    done = CliRunner().invoke(app, ["runs", "--home", str(home)], env={"COLUMNS": "240"})
    assert done.exit_code == 0
    lines = done.output.splitlines()
    assert [line.split()[0] for line in lines if "-0853" in line] == [OTHER, NEW, OLD]
    assert "onnxruntime 1.21.0, 1.31.0" in done.output
    assert "failed: ort-optimized; skipped: ort-cuda" in done.output
    arguments = ["runs", "--home", str(home), "--verdict", "failed", "--json"]
    told = json.loads(CliRunner().invoke(app, arguments).output)
    assert [entry["run"] for entry in told] == [OLD]
    arguments = ["runs", "--home", str(home), "--since", "2031-01-01"]
    assert "no matching run" in " ".join(CliRunner().invoke(app, arguments).output.split())
    assert (
        CliRunner().invoke(app, ["runs", "--home", str(home), "--verdict", "good"]).exit_code == 2
    )


def test_latest_is_the_newest_run_for_every_command(home: Path) -> None:
    assert find_run("latest", Home(home)).name == OTHER
    with pytest.raises(UsageError, match="has no finished runs"):
        find_run("latest", Home(home / "nothing"))


def test_a_real_run_is_listed_and_the_store_beside_it_is_not(finished: RunOutcome) -> None:
    home = home_around(finished.folder)
    entries = list_runs(Home(home), Filter())
    assert [entry.run for entry in entries] == [finished.record.id]
    assert entries[0].targets == {"ort": "verified"}


def test_the_table_shows_the_newest_hundred_and_says_so(tmp_path: Path) -> None:
    folder, record = write_built_run(tmp_path, build_record())
    for number in range(100):
        run = f"20250101-{number:06}-0000"
        shutil.copytree(folder, folder.parent / run)
        text = (folder / "result.json").read_text().replace(record.id, run)
        (folder.parent / run / "result.json").write_text(text)
    code, text = command_line("runs", home=tmp_path)
    assert code == 0
    assert "101 runs" in text
    assert "the newest 100 are shown" in text
    assert text.count("20250101-") == 99
    _, text = command_line("runs", "--all", home=tmp_path)
    assert text.count("20250101-") == 100
    _, text = command_line("runs", "--json", home=tmp_path)
    assert text.count('"run": "2025') == 101
