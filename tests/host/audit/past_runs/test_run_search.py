"""`convkit audit ARTIFACT`: which run made these bytes."""

import json
import shutil
from pathlib import Path

import pytest
from answers import answer_for, audit_record, command_line, problems
from command_line import Done, convkit
from past_runs import flip_byte

from convkit.host.home import home_around
from convkit.host.store.store import Store
from convkit.protocol.errors import UnknownBytesError, UsageError


def test_a_built_file_leads_to_its_run(folder: Path, tmp_path: Path) -> None:
    home = home_around(folder)
    copy = tmp_path / "deployed.onnx"
    shutil.copyfile(folder / "models" / "ort" / "model.onnx", copy)
    answer = answer_for(copy, home)
    assert (answer.run, answer.exit_code) == (folder.name, 0)
    assert answer.artifact is not None
    assert (answer.artifact.files, answer.artifact.target) == (("models/ort/model.onnx",), "ort")
    shutil.copytree(folder / "models" / "ort", tmp_path / "deployed")
    whole = answer_for(tmp_path / "deployed", home).artifact
    assert whole is not None
    assert len([each for each in whole.files if "/golden/" not in each]) == 6
    assert "target ort: verified" in command_line("audit", copy, home=home)[1]
    flip_byte(copy)
    with pytest.raises(UnknownBytesError, match=r"deployed\.onnx: no run"):
        answer_for(copy, home)
    code, output = command_line("audit", copy, "--json", home=home)
    assert (code, json.loads(output)["integrity"]) == (1, "unknown")
    (tmp_path / "deployed" / "more.bin").write_bytes(b"more")
    with pytest.raises(UnknownBytesError):
        answer_for(tmp_path / "deployed", home)


def test_a_recipe_is_not_what_an_audit_is_about(folder: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "bert.yaml"
    recipe.write_text("name: bert\n")
    with pytest.raises(UsageError, match="name a run of it, or a file that it built"):
        answer_for(recipe, home_around(folder))


def test_a_changed_file_inside_a_run_leads_to_that_run(folder: Path) -> None:
    flip_byte(folder / "models" / "ort" / "model.onnx")
    answer = answer_for(folder / "models" / "ort" / "model.onnx", home_around(folder))
    assert answer.run == folder.name
    assert problems(answer) == {"models/ort/model.onnx": "changed"}


def test_a_digest_leads_to_its_run(folder: Path) -> None:
    home = home_around(folder)
    stage = next(stage for stage in audit_record(folder)["stages"] if stage["id"] == "build:ort")
    sha256 = Store(home / "store").files(stage["artifact"])["model.onnx"].sha256
    for digest in (sha256, sha256[:12].upper(), f"sha256:{sha256}", stage["artifact"]):
        assert answer_for(digest, home).run == folder.name
    with pytest.raises(UnknownBytesError):
        answer_for("0" * 64, home)


def test_bytes_that_several_runs_made_name_them_all(folder: Path) -> None:
    home = home_around(folder)
    twin = folder.with_name("20990101-000000-abcd")
    shutil.copytree(folder, twin)
    artifact = answer_for(folder / "models" / "ort" / "model.onnx", home).artifact
    assert artifact is not None
    assert artifact.runs == (f"small/{folder.name}", f"small/{twin.name}")


def test_the_commands_exit_with_what_they_found(folder: Path) -> None:
    def run(*arguments: object) -> Done:
        return convkit(*arguments, "--home", home_around(folder))

    assert run("audit", folder.name).returncode == 0
    unknown = run("audit", "f" * 64)
    assert (unknown.returncode, "no run in this home" in unknown.stderr) == (1, True)
    assert run("audit", "nothing").returncode == 2
    assert run("diff", folder.name, "nothing").returncode == 2
    (folder / "report.html").unlink()
    broken = run("audit", folder.name)
    assert (broken.returncode, "report.html: missing" in broken.stdout) == (1, True)
    assert "Traceback" not in unknown.stderr + broken.stderr


def test_what_there_is_not_is_said_with_what_there_is(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no run 'smal'.*perhaps you meant"):
        answer_for("smal", home_around(folder))
    for place in (folder.parent, home_around(folder)):
        with pytest.raises(UsageError, match="a folder of runs; name one of them"):
            answer_for(place, home_around(folder))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="empty folder"):
        answer_for(tmp_path / "empty", home_around(folder))
