"""`convkit audit`: damage of every kind is named; the folder alone answers."""

import dataclasses
import json
import os
import shutil
import time
from pathlib import Path

import pytest
from answers import answer_for, audit_folder, audit_record, command_line, problems
from past_runs import FILES, flip_byte, make_run
from records import build_record
from resealing import edit_result, edit_statement, seal_again
from run_folders import materials_of_recipe, write_built_run, write_run

from convkit.host.audit.differences.run_difference import compare_runs
from convkit.host.audit.past_runs.later_records import (
    Acceptance,
    Reproduction,
    provenance_digest,
    reproductions_of,
    write_acceptance,
    write_reproduction,
)
from convkit.host.home import home_around
from convkit.host.record.provenance import write_provenance
from convkit.host.record.recorded_materials import Materials
from convkit.host.run.run_options import RunOutcome
from convkit.host.store.digests import digest_file
from convkit.host.store.store import Store
from convkit.protocol.errors import ProvenanceError
from convkit.protocol.json_codec import encode


def test_an_untouched_run_is_intact(finished: RunOutcome) -> None:
    answer = audit_folder(finished.folder)
    assert (answer.integrity, answer.exit_code, answer.problems) == ("intact", 0, ())
    assert answer.folder_check.checked == len(FILES) - 1
    assert answer.store_check.objects > 0
    assert answer.store_check.artifacts == len({stage.artifact for stage in finished.record.stages})


@pytest.mark.parametrize("name", FILES)
def test_one_flipped_byte_in_any_file_is_named(folder: Path, name: str) -> None:
    assert audit_folder(folder).exit_code == 0
    flip_byte(folder / name)
    assert problems(audit_folder(folder)) == {name: "changed"}
    code, output = command_line("audit", folder.name, home=home_around(folder))
    assert code == 1
    assert f"!! {name}: changed" in output
    assert "BROKEN" in output


@pytest.mark.parametrize("name", FILES)
def test_a_deleted_file_is_named(folder: Path, name: str) -> None:
    (folder / name).unlink()
    answer = audit_folder(folder)
    assert problems(answer) == {name: "missing"}
    assert answer.exit_code == 1


@pytest.mark.parametrize(
    "name", ["models/ort/model.onnx.data", "notes.txt", "locks/export.txt", "models/new/model.onnx"]
)
def test_an_added_file_is_named(folder: Path, name: str) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text("more")
    answer = audit_folder(folder)
    assert problems(answer) == {name: "extra"}
    assert answer.exit_code == 1


def test_a_link_in_place_of_a_file_is_no_file_of_the_run(folder: Path, tmp_path: Path) -> None:
    (folder / "report.html").rename(tmp_path / "elsewhere.html")
    (folder / "report.html").symlink_to(tmp_path / "elsewhere.html")
    (folder / "outside").symlink_to(tmp_path, target_is_directory=True)
    assert problems(audit_folder(folder)) == {"report.html": "unreadable", "outside": "extra"}


def test_a_renamed_file_is_both_missing_and_extra(folder: Path) -> None:
    (folder / "models" / "ort" / "model.onnx").rename(folder / "models" / "ort" / "renamed.onnx")
    assert problems(audit_folder(folder)) == {
        "models/ort/model.onnx": "missing",
        "models/ort/renamed.onnx": "extra",
    }


@pytest.mark.thorough
def test_without_store_and_mlflow_the_folder_answers_alone(tmp_path: Path) -> None:
    outcome = make_run(tmp_path / "home", track=True)
    home = tmp_path / "home"
    assert (home / "mlflow.db").is_file()
    with_all = audit_folder(outcome.folder)
    assert with_all.exit_code == 0
    (home / "mlflow.db").unlink()
    shutil.rmtree(home / "store")
    alone = audit_folder(outcome.folder)
    assert (alone.integrity, alone.exit_code) == ("intact", 0)
    assert alone.store_check.place is None
    assert alone.making == with_all.making
    assert alone.targets == with_all.targets
    assert alone.folder_check == with_all.folder_check
    flip_byte(outcome.folder / "models" / "ort" / "model.onnx")
    assert problems(audit_folder(outcome.folder)) == {"models/ort/model.onnx": "changed"}
    assert not (home / "store").exists()  # looking leaves nothing behind


def test_a_copy_of_the_folder_answers_anywhere(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "stick" / "handed over"
    shutil.copytree(folder, copy)
    answer = answer_for(copy, tmp_path / "no home")
    assert (answer.integrity, answer.store_check.place) == ("intact", None)
    flip_byte(copy / "result.json")
    assert answer_for(copy, tmp_path / "no home").exit_code == 1


def test_the_store_s_damage_is_found_where_the_folder_is_whole(folder: Path) -> None:
    store = Store(home_around(folder) / "store")
    artifact = next(
        stage for stage in audit_record(folder)["stages"] if stage["id"] == "build:ort"
    )["artifact"]
    entry = store.files(artifact)["model.onnx"]
    shown = f"store/objects/{entry.sha256[:2]}/{entry.sha256}"
    flip_byte(store.object(entry.sha256))
    assert problems(audit_folder(folder)) == {shown: "changed"}
    store.object(entry.sha256).unlink()
    assert problems(audit_folder(folder)) == {shown: "missing"}
    manifest = f"store/artifacts/{artifact}.json"
    shutil.copyfile(folder / "recipe.yaml", store.root / "artifacts" / f"{artifact}.json")
    assert problems(audit_folder(folder))[manifest] == "changed"


def test_bytes_changed_in_place_are_named_in_the_folder_and_in_the_store(folder: Path) -> None:
    model = folder / "models" / "ort" / "model.onnx"
    place = Store(home_around(folder) / "store").object(digest_file(model))
    model.unlink()
    model.hardlink_to(place)  # as earlier releases left it: one file under two names
    assert audit_folder(folder).exit_code == 0
    place.chmod(0o644)
    with place.open("r+b") as stream:
        stream.write(b"X")
    assert set(problems(audit_folder(folder))) == {
        "models/ort/model.onnx",
        f"store/objects/{place.parent.name}/{place.name}",
    }


def test_a_run_makes_bytes_that_changed_in_the_store_anew(folder: Path) -> None:
    home = home_around(folder)
    place = Store(home / "store").object(digest_file(folder / "models" / "ort" / "model.onnx"))
    flip_byte(place)
    later = make_run(home, verify={"seed": 11, "tolerance": {"max_abs": 1e-4}})
    done = {stage.id for stage in later.record.stages if stage.status == "done"}
    # The export and the build share the damaged object: the first to need it makes it anew.
    assert done == {"export"}
    assert audit_folder(later.folder).exit_code == 0
    assert audit_folder(folder).exit_code == 0


@pytest.mark.parametrize("name", sorted(FILES))
@pytest.mark.sampled(2)
def test_a_run_whose_folder_was_damaged_is_not_up_to_date(folder: Path, name: str) -> None:
    flip_byte(folder / name)
    later = make_run(home_around(folder))
    assert not later.up_to_date
    assert {stage.status for stage in later.record.stages} == {"hit"}
    assert audit_folder(later.folder).exit_code == 0
    assert make_run(home_around(folder)).up_to_date


def test_a_file_added_to_a_runs_models_is_not_up_to_date(folder: Path) -> None:
    (folder / "models" / "ort" / "model.onnx.data").write_bytes(b"weights")
    assert not make_run(home_around(folder)).up_to_date


def test_a_damaged_stage_record_is_named_and_its_stage_runs_again(folder: Path) -> None:
    home = home_around(folder)
    (stage,) = (each for each in audit_record(folder)["stages"] if each["id"] == "verify:ort")
    path = home / "store" / "stages" / f"{stage['key']}.json"
    text = path.read_text()
    assert '"max_abs":' in text
    path.write_text(text.replace('"max_abs": ', '"max_abs": 1', 1))
    assert problems(audit_folder(folder)) == {f"store/stages/{path.name}": "changed"}
    later = make_run(home)
    assert {each.id for each in later.record.stages if each.status == "done"} == {"verify:ort"}
    assert audit_folder(folder).exit_code == 0


def test_an_artifact_that_the_store_no_longer_holds_is_no_damage(folder: Path) -> None:
    store = Store(home_around(folder) / "store")
    artifact = audit_record(folder)["stages"][0]["artifact"]
    (store.root / "artifacts" / f"{artifact}.json").unlink()
    answer = audit_folder(folder)
    assert (answer.exit_code, answer.store_check.absent) == (0, (artifact,))


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"format": 99}', '{"format": 1}'])
def test_a_damaged_result_is_named_and_the_rest_still_answered(folder: Path, content: str) -> None:
    (folder / "result.json").write_text(content)
    answer = audit_folder(folder)
    assert problems(answer) == {"result.json": "changed"}
    assert answer.exit_code == 1
    assert answer.making is not None
    assert answer.making.seeds == {"verify.seed": 11, "model.factory.seed": 3}
    assert [(target.target, target.status) for target in answer.targets] == [("ort", "verified")]
    code, output = command_line("audit", folder.name, home=home_around(folder))
    assert code == 1
    assert "result.json cannot be read" in output


def test_nothing_readable_at_all_is_said(folder: Path) -> None:
    for name in ("result.json", "provenance.json"):
        (folder / name).write_bytes(b"\xff\x00")
    answer = audit_folder(folder)
    assert problems(answer) == {"result.json": "changed", "provenance.json": "changed"}
    assert answer.making is None
    assert command_line("audit", folder.name, home=home_around(folder))[0] == 1
    for name in ("result.json", "provenance.json"):
        (folder / name).unlink()
    assert answer_for(folder.name, home_around(folder)).exit_code == 1  # known by its name alone


def test_it_says_what_was_verified_and_how_it_was_made(finished: RunOutcome) -> None:
    home = home_around(finished.folder)
    code, output = command_line("audit", "latest", "--full", home=home)
    assert code == 0
    words = " ".join(output.split())
    for said in (
        "INTACT",
        "convkit run recipes/recipe.yaml",
        "verify.seed=11",
        "model model.py:build: sha256",
        "tolerance of y: max_abs 1e-05",
        "typical (batch=3)",
        "on the device itself",
        "never reproduced",
        "seed: 11",
    ):
        assert said in words
    summary = command_line("audit", "latest", home=home)[1]
    assert "seed: 11" not in summary
    assert "ort: verified" in summary
    assert len(summary.splitlines()) < 25
    told = json.loads(command_line("audit", "latest", "--json", home=home)[1])
    assert (told["integrity"], told["exit_code"], told["run"]) == ("intact", 0, finished.record.id)
    assert told["targets"][0]["verifications"][0]["evidence"] == "device"


def test_a_failed_and_a_skipped_target_are_told_as_such(tmp_path: Path) -> None:
    folder, record = write_built_run(tmp_path, build_record(provenance=True))
    write_provenance(folder, record, materials_of_recipe(record))
    answer = audit_folder(folder)
    assert (answer.integrity, answer.exit_code, answer.verdict) == ("intact", 0, "failed")
    output = command_line("audit", folder, "--full", home=tmp_path)[1]
    verdicts = "(ort-cpu verified, ort-optimized failed, ort-cuda skipped)"
    assert f"Verification: failed {verdicts}" in output
    assert "SKIPPED, nothing was verified" in output
    assert "simulated, not on the device" in output
    assert "typical (batch=4, sequence=128; FAILED)" in " ".join(output.split())
    assert "error C110 in ort-optimized" in output


def test_an_old_run_without_provenance_is_unproven_not_broken(tmp_path: Path) -> None:
    folder, _ = write_built_run(tmp_path, build_record())
    answer = audit_folder(folder)
    assert (answer.integrity, answer.exit_code) == ("unproven", 0)
    assert answer.folder_check.basis == "nothing"
    output = command_line("audit", folder, home=tmp_path)[1]
    assert "UNPROVEN" in output
    assert "the folder alone does not prove its bytes" in output
    flip_byte(folder / "recipe.yaml")
    assert problems(audit_folder(folder)) == {"recipe.yaml": "changed"}


def old_run(folder: Path) -> None:
    """Make a run one of a release that wrote no provenance."""
    (folder / "provenance.json").unlink()
    (folder / "models" / "ort" / "origin.json").unlink()
    shutil.rmtree(folder / "models" / "ort" / "golden")
    record = audit_record(folder)
    del record["provenance"]
    (folder / "result.json").write_text(json.dumps(record))


def test_of_an_old_run_the_store_s_manifests_prove_the_models(folder: Path) -> None:
    old_run(folder)
    answer = audit_folder(folder)
    assert (answer.integrity, answer.folder_check.basis) == ("unproven", "the store's manifests")
    assert set(answer.folder_check.unproven) == {
        name for name in FILES if not name.startswith("models/")
    } - {"provenance.json"}
    flip_byte(folder / "models" / "ort" / "model.onnx")
    assert problems(audit_folder(folder)) == {"models/ort/model.onnx": "changed"}


def test_reproductions_lie_beside_and_do_not_break_the_bytes(folder: Path) -> None:
    now = time.time()
    later = Reproduction(
        folder.name,
        now + 300,
        "DRIFTED",
        {"ort": "DRIFTED"},
        {"platform": "Linux"},
        provenance=provenance_digest(folder),
    )
    first = dataclasses.replace(
        later, when=now + 100, worst="BIT_IDENTICAL", artifacts={"ort": "BIT_IDENTICAL"}
    )
    assert reproductions_of(folder) == []
    paths = [write_reproduction(folder, each) for each in (later, first)]
    write_acceptance(folder, Acceptance(folder.name, now + 200, "release team", "for 2.0"))
    assert reproductions_of(folder) == [first, later]
    answer = audit_folder(folder)
    assert (answer.integrity, answer.reproductions) == ("intact", (first, later))
    output = command_line("audit", folder, home=home_around(folder))[1]
    assert "DRIFTED (ort DRIFTED) on Linux" in output
    assert "accepted by release team" in output
    paths[0].write_text('{"run": 1}')
    with pytest.raises(ProvenanceError, match=paths[0].name):
        reproductions_of(folder)
    damaged = audit_folder(folder)
    assert list(problems(damaged)) == [f"../{folder.name}.reproductions/{paths[0].name}"]
    assert damaged.exit_code == 1


@pytest.mark.parametrize("name", ["report.html", "recipe.yaml", "models/ort/model.onnx"])
def test_what_is_no_file_any_more_is_named_and_not_waited_for(folder: Path, name: str) -> None:
    (folder / name).unlink()
    os.mkfifo(folder / name)
    assert problems(audit_folder(folder)) == {name: "unreadable"}


def test_a_provenance_of_another_run_does_not_fit(folder: Path, tmp_path: Path) -> None:
    record = build_record()
    other = write_run(tmp_path / "other", record)
    write_provenance(other, record, Materials())
    shutil.copyfile(other / "provenance.json", folder / "provenance.json")
    assert problems(audit_folder(folder))["result.json"] == "changed"
    assert encode(record)["id"] != folder.name


def test_an_acceptance_of_an_earlier_release_has_no_digest_which_is_said(folder: Path) -> None:
    path = write_acceptance(folder, Acceptance(folder.name, 4e9, "release team"))
    assert audit_folder(folder).notes == ()
    path.write_text(json.dumps(json.loads(path.read_text())["content"]))
    answer = audit_folder(folder)
    assert answer.acceptance is not None
    assert answer.notes == (f"../{path.name} has no digest: an earlier release wrote it",)


def test_a_run_of_an_earlier_release_whose_processor_has_no_features_is_intact(
    folder: Path,
) -> None:
    """A record edited by hand to what earlier releases wrote, sealed as they did."""

    def as_earlier(host: dict[str, str]) -> None:
        for name in ("processor_features", "integer_kernels", "cores"):
            del host[name]
        host["processor"] += " avx2 avx512f avx512_vnni"

    edit_result(folder, lambda record: as_earlier(record["host"]))
    edit_statement(
        folder,
        lambda statement: as_earlier(
            statement["predicate"]["buildDefinition"]["internalParameters"]["host"]
        ),
    )
    seal_again(folder)
    answer = audit_folder(folder)
    known = {str(each) for each in answer.contradictions if "host" in str(each)}
    assert (answer.problems, known) == ((), set())
    assert compare_runs(folder, folder).relation == "SAME"
