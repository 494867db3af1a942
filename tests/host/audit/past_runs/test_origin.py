"""`origin.json`: a built model says which run built it, and its bytes are the same in every run."""

import json
import shutil
from pathlib import Path

import pytest
from answers import answer_for, audit_folder, command_line, problems
from past_runs import flip_byte, make_run
from resealing import edit_statement, seal_again

import convkit
from convkit.host.audit.past_runs.run_history import parse_model
from convkit.host.home import home_around
from convkit.host.run.run_options import RunOutcome
from convkit.host.store.digests import digest_file
from convkit.protocol.built_model_origin import checked_origin
from convkit.protocol.errors import ModelFileError, UnknownBytesError, UsageError

ORIGIN = "models/ort/origin.json"


@pytest.fixture
def deployed(finished: RunOutcome, tmp_path: Path) -> Path:
    """A model's folder, copied to where it is used."""
    shutil.copytree(finished.folder / "models" / "ort", tmp_path / "deployed")
    return tmp_path / "deployed"


def test_it_names_the_run_and_its_provenance(finished: RunOutcome, deployed: Path) -> None:
    origin = convkit.load(deployed).origin
    assert origin is not None
    assert (origin.recipe, origin.run, origin.target) == ("small", finished.record.id, "ort")
    assert origin.provenance == digest_file(finished.folder / "provenance.json")
    assert origin.files["model.onnx"] == digest_file(deployed / "model.onnx")
    assert {name for name in origin.files if not name.startswith("golden/")} == {
        *("bindings.hpp", "bindings.py", "contract.json", "model.onnx", "operators.json")
    }


def test_two_runs_build_the_same_bytes_and_differ_in_their_origin_only(folder: Path) -> None:
    flip_byte(folder / "report.html")  # or the second run would be up to date
    again = make_run(home_around(folder))
    for name in ("model.onnx", "contract.json", "bindings.py"):
        assert (folder / "models/ort" / name).read_bytes() == (
            again.folder / "models/ort" / name
        ).read_bytes()
    assert (folder / ORIGIN).read_bytes() != (again.folder / ORIGIN).read_bytes()


@pytest.mark.parametrize("key", ["run", "recipe", "target", "provenance", "files"])
def test_an_edited_origin_is_named(folder: Path, key: str) -> None:
    value = json.loads((folder / ORIGIN).read_text())
    value[key] = {"model.onnx": "0" * 64} if key == "files" else "20200101-000000-0000"
    (folder / ORIGIN).write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")
    assert problems(audit_folder(folder)) == {ORIGIN: "changed"}


def test_an_origin_of_another_run_is_named(folder: Path) -> None:
    flip_byte(folder / "report.html")
    again = make_run(home_around(folder))
    shutil.copyfile(folder / ORIGIN, again.folder / ORIGIN)
    assert problems(audit_folder(again.folder)) == {ORIGIN: "changed"}


@pytest.mark.parametrize(
    "names", [[], ["models/ort/model.onnx"], ["../origin.json"], [ORIGIN, "models/x/origin.json"]]
)
def test_a_provenance_cannot_exempt_other_files(folder: Path, names: list[str]) -> None:
    """What the statement does not digest is the origins, and nothing but the origins."""

    def change(statement) -> None:
        statement["predicate"]["buildDefinition"]["internalParameters"]["origins"] = names

    edit_statement(folder, change)
    named = problems(audit_folder(folder))
    assert named == ({ORIGIN: "extra"} if not names else {"provenance.json": "changed"})


def test_sealed_again_it_is_that_of_the_new_provenance(folder: Path) -> None:
    before = (folder / ORIGIN).read_bytes()
    edit_statement(
        folder,
        lambda statement: statement["predicate"]["buildDefinition"]["internalParameters"].update(
            seeds={"verify.seed": 5}
        ),
    )
    assert problems(audit_folder(folder)) == {ORIGIN: "changed"}
    seal_again(folder)
    assert (folder / ORIGIN).read_bytes() != before


def test_a_changed_model_is_not_what_its_origin_names(deployed: Path) -> None:
    flip_byte(deployed / "contract.json")
    with pytest.raises(ModelFileError, match=r"contract\.json in .*: not what run"):
        _ = convkit.load(deployed).origin


def test_another_model_beside_it_is_named_whatever_its_name(deployed: Path) -> None:
    (deployed / "model.onnx").rename(deployed / "renamed.onnx")
    assert checked_origin(deployed / "renamed.onnx") is not None
    (deployed / "renamed.onnx").write_bytes(b"another model")
    with pytest.raises(ModelFileError, match=r"renamed\.onnx in .*: not what run"):
        checked_origin(deployed / "renamed.onnx")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 9}', "\udcff"])
def test_a_damaged_one_is_refused(deployed: Path, text: str) -> None:
    (deployed / "origin.json").write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ModelFileError, match=r"origin\.json"):
        checked_origin(deployed)


def test_without_one_nothing_is_claimed(deployed: Path) -> None:
    (deployed / "origin.json").unlink()
    assert convkit.load(deployed).origin is None


@pytest.mark.thorough
def test_inspect_shows_it(finished: RunOutcome, deployed: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    code, output = command_line("inspect", deployed, home=home)
    assert code == 0
    assert f"small/{finished.record.id}, target ort" in output
    (deployed / "origin.json").write_text("{}")
    code, output = command_line("inspect", deployed, "--json", home=home)
    assert code == 0
    assert "damaged" in json.loads(output)["origin"]["problem"]


def test_a_copied_model_leads_to_its_run(finished: RunOutcome, deployed: Path) -> None:
    home = home_around(finished.folder)
    run = f"small/{finished.record.id}"
    for subject in (deployed, deployed / "model.onnx"):
        code, output = command_line("affected", subject, home=home)
        assert code == 0
        assert f"{run} ort: verified" in output
        code, output = command_line("runs", "--model", subject, "--json", home=home)
        assert [each["run"] for each in json.loads(output)] == [finished.record.id]
    digest = digest_file(deployed / "model.onnx")
    assert finished.record.id in command_line("runs", "--model", digest[:12], home=home)[1]
    (deployed / "model.onnx").write_bytes(b"another model")
    assert json.loads(command_line("runs", "--model", deployed, "--json", home=home)[1]) == []
    assert "0 models of 0 runs" in command_line("affected", deployed, home=home)[1]
    with pytest.raises(UsageError, match=r"nowhere\.onnx: no such file"):
        parse_model("nowhere.onnx")


def test_of_equal_models_the_origin_tells_which_run_it_was_copied_from(
    folder: Path, tmp_path: Path
) -> None:
    flip_byte(folder / "report.html")
    again = make_run(home_around(folder))
    shutil.copytree(folder / "models" / "ort", tmp_path / "deployed")
    answer = answer_for(tmp_path / "deployed", home_around(folder))
    assert answer.run == folder.name != again.record.id
    flip_byte(tmp_path / "deployed" / "origin.json")
    with pytest.raises(UnknownBytesError):
        answer_for(tmp_path / "deployed", home_around(folder))
