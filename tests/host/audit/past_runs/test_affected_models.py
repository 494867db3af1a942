"""`convkit affected` and the summaries it reads: checked against a search of the records."""

import csv
import dataclasses
import io
import json
import shutil
from pathlib import Path

import pytest
from answers import command_line
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from records import STARTED, build_record, verified_record
from run_folders import write_built_run
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.audit.past_runs.affected_models import affected
from convkit.host.audit.past_runs.later_records import Acceptance, beside, write_acceptance
from convkit.host.audit.past_runs.run_history import Filter, list_runs, parse_tools
from convkit.host.audit.past_runs.search_index import summary_of
from convkit.host.home import Home
from convkit.host.record.provenance import write_provenance
from convkit.host.record.recorded_materials import Dependency, LockedPackage, Materials
from convkit.protocol.errors import UsageError

WEIGHTS, REVISION = "5d" * 32, "a1b2c3d4" * 5
MATERIALS = Materials(
    (
        Dependency(
            "org/bert",
            "source",
            "pkg:huggingface/org/bert@" + REVISION,
            {"gitCommit": REVISION},
            {"revision": REVISION},
        ),
        Dependency("weights.pt", "file", digest={"sha256": WEIGHTS}),
    ),
    locked=(LockedPackage("flatbuffers", "25.1", ("sha256:" + "a" * 64,), ("export",)),),
)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Two runs, of which the first failed and has materials, and the second was accepted."""
    first, record = write_built_run(tmp_path, build_record(provenance=True))
    write_provenance(first, record, MATERIALS)
    later = dataclasses.replace(verified_record(), id="20251010-085320-0001", provenance=True)
    second, record = write_built_run(tmp_path, later)
    write_provenance(second, record, Materials())
    write_acceptance(second, Acceptance(second.name, STARTED + 60))
    return Home(tmp_path)


def found(home: Home, asked: str) -> dict[tuple[str, str], tuple[str, ...]]:
    return {(each.run[-4:], each.target): each.how for each in affected(asked, home).affected}


def test_who_built_and_verified_with_a_package(home: Home) -> None:
    assert found(home, "onnxruntime==1.21.*") == {
        ("0001", "ort-cpu"): ("verified",),
        ("3f9a", "ort-cpu"): ("verified",),
    }
    assert found(home, "onnxruntime>=1.30")["3f9a", "ort-optimized"] == ("built", "verified")
    shared = found(home, "Torch==2.13.0")
    assert shared["3f9a", "ort-cuda"] == ("built", "verified"), "the export is everybody's"
    assert found(home, "torch<2") == {}


def test_what_was_only_installed_is_found_too(home: Home) -> None:
    assert set(found(home, "flatbuffers").values()) == {("installed",)}
    runs = list_runs(home, Filter(tools=parse_tools(["flatbuffers"])))
    assert [entry.run[-4:] for entry in runs] == ["3f9a"]


def test_digests_revisions_codes_and_names(home: Home) -> None:
    everything = {("3f9a", name): ("source",) for name in ("ort-cpu", "ort-optimized", "ort-cuda")}
    for asked in (WEIGHTS, f"sha256:{WEIGHTS[:12]}", REVISION, "org/bert", f"org/bert@{REVISION}"):
        assert found(home, asked) == everything, asked
    assert found(home, "org/bert@main") == {}
    assert found(home, "C110") == {("3f9a", "ort-optimized"): ("finding",)}
    newest = affected("onnxruntime", home).affected[0]
    digest = newest.files["models/ort-cpu/model.onnx"]
    assert found(home, digest)["0001", "ort-cpu"] == ("contains",)
    assert newest.accepted
    assert not affected("C110", home).affected[0].accepted


@pytest.mark.parametrize(
    "asked", ["", "a b c", "torch; python_version > '3'", "torch[extra]", "=="]
)
def test_a_question_that_means_nothing_is_refused(home: Home, asked: str) -> None:
    with pytest.raises(UsageError):
        affected(asked, home)


@pytest.mark.parametrize("specifier", ["==1.21.*", ">=1.21", "<1.30", "!=1.21.0", "==2.13.0"])
@pytest.mark.parametrize("name", ["onnxruntime", "torch", "python", "onnx"])
def test_it_finds_what_a_search_of_every_record_finds(
    home: Home, name: str, specifier: str
) -> None:
    expected = set()
    for path in home.root.glob("*/*/result.json"):
        record = json.loads(path.read_text())
        for target in record["targets"]:
            expected |= {
                (record["id"][-4:], target["name"])
                for stage in record["stages"]
                for package, version in stage["versions"].items()
                if stage["target"] in (None, target["name"])
                and package == name
                and Version(version) in SpecifierSet(specifier)
            }
    assert set(found(home, name + specifier)) == expected


def test_a_summary_is_made_once_and_again_if_the_run_or_itself_changes(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    from convkit.host.audit.past_runs import index_summary

    folder = home.run_folders()[0]
    first = summary_of(folder)
    file = beside(folder, ".summary.json")
    whole = file.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(
            index_summary, "read_record", lambda _: pytest.fail("the summary was not used")
        )
        assert summary_of(folder) == first
    for damaged in (b"", whole[:-9], whole.replace(b"1.21.0", b"1.99.0")):
        file.write_bytes(damaged)
        assert summary_of(folder) == first
        assert file.read_bytes() == whole
    record = json.loads((folder / "result.json").read_text()) | {"status": "failed"}
    (folder / "result.json").write_text(json.dumps(record))
    assert summary_of(folder).status == "failed"


def test_a_damaged_run_is_named_and_not_passed_over(home: Home) -> None:
    summary_of(home.run_folders()[0])
    (home.run_folders()[0] / "result.json").write_text("{")
    assert affected("onnxruntime", home).unreadable == ("bert/20251010-085320-0001",)
    code, output = command_line("affected", "onnxruntime", home=home.root)
    assert (code, "bert/20251010-085320-0001" in output) == (1, True)


def test_text_json_and_csv_agree(home: Home) -> None:
    answer = affected("onnxruntime==1.21.*", home)
    arguments = ["affected", "onnxruntime==1.21.*", "--home", str(home.root), "--format"]
    text, told, table = (
        CliRunner().invoke(app, [*arguments, name]).stdout for name in ("text", "json", "csv")
    )
    assert [each["run"] for each in json.loads(told)["affected"]] == [
        each.run for each in answer.affected
    ]
    rows = list(csv.DictReader(io.StringIO(table)))
    digests = {digest for each in answer.affected for digest in each.files.values()}
    assert {row["sha256"] for row in rows} == digests
    assert all(digest in text for digest in digests)
    assert "2 models of 2 runs" in text


def test_a_home_that_cannot_be_written_is_searched_without_summaries(home: Home) -> None:
    folder = home.run_folders()[0]
    (folder.parent / f"{folder.name}.summary.json").mkdir()
    assert found(home, "onnxruntime==1.21.*")
    shutil.rmtree(folder)
    assert len(found(home, "onnxruntime==1.21.*")) == 1
