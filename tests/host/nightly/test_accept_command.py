"""Accepting a run: the baseline's file, what it refuses, who remembers it."""

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest
from synthetic import Simulation
from typer.testing import CliRunner

from convkit.cli.main import app
from convkit.host.audit.audit_policy import read_policy
from convkit.host.audit.signing.signing_keys import make_key
from convkit.host.nightly.accept_command import accept_run, retire_recipe
from convkit.host.nightly.baseline import is_edited, read_baseline
from convkit.host.record.provenance import FILE_NAME
from convkit.host.run.run_folder import read_record
from convkit.host.store.digests import digest_file
from convkit.protocol.errors import UsageError


@pytest.fixture
def simulation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """Return a simulation with one nightly run, not accepted yet."""
    made = Simulation.install(tmp_path / "place", monkeypatch)
    assert made.night().status == "green"
    return made


def newest(simulation: Simulation) -> Path:
    return max(simulation.home.runs_of("small").glob("*/result.json")).parent


def test_the_baseline_is_a_small_file_beside_the_recipe_that_says_all(
    simulation: Simulation,
) -> None:
    accepted = simulation.accept("the first")
    assert accepted.file == simulation.recipe_file.with_name("small.baseline.json")
    assert accepted.file.stat().st_size < 8_000
    assert accepted.changes is None
    baseline = read_baseline(accepted.file)
    assert baseline is not None
    folder = newest(simulation)
    assert (baseline.run, baseline.note) == (folder.name, "the first")
    assert baseline.provenance == digest_file(folder / FILE_NAME)
    assert not is_edited(baseline)
    snapshot = baseline.snapshot
    assert set(snapshot.targets) == {"ort", "trt"}
    verification = snapshot.targets["ort"].verifications["verify:ort"]
    assert (verification.status, verification.evidence) == ("verified", "device")
    assert verification.cases["largest"] == {"batch": 5, "sequence": 4}
    assert verification.outputs["y"].limits == {"max_abs": 1e-4}
    assert verification.outputs["y"].figures["max_abs"] == 1e-5
    assert snapshot.tools["verify:ort"]["onnxruntime"] == "1.31.1"
    assert snapshot.verified_on["verify.seed"] == "11"
    assert "verify.tolerance.max_abs" not in snapshot.verified_on, "compared as a limit"
    assert snapshot.sources == {"source model.py:build": f"sha256 {'a' * 64}"}


def test_moving_a_baseline_needs_a_note_and_says_what_changes(simulation: Simulation) -> None:
    simulation.accept("")  # the first one needs none
    simulation.targets = ("ort",)
    assert simulation.night().status == "regressed"
    for note in ("", "  "):
        with pytest.raises(UsageError, match="has a baseline already; say why it moves"):
            simulation.accept(note)
    simulation.baseline_file.unlink()
    with pytest.raises(UsageError, match="has a baseline already"):  # the home remembers
        simulation.accept("")
    simulation.night()
    accepted = simulation.accept("trt is no longer needed")
    assert accepted.changes is None, "there was no file to compare with"
    simulation.targets = ("ort", "trt")
    assert simulation.night().improvements == ("target 'trt' is new: verified",)
    changes = simulation.accept("and it is back").changes
    assert changes is not None
    assert changes.improvements == ("target 'trt' is new: verified",)


def test_a_run_of_another_recipe_is_refused(simulation: Simulation) -> None:
    simulation.recipe["verify"] = {"seed": 12, "tolerance": {"max_abs": 1e-5}}
    simulation.write_recipe()
    with pytest.raises(UsageError, match="has changed since run"):
        simulation.accept()
    simulation.recipe_file.unlink()
    with pytest.raises(UsageError, match="the recipe is gone; say where it is now"):
        simulation.accept()
    assert not simulation.baseline_file.exists()


def test_a_comment_in_the_recipe_changes_nothing(simulation: Simulation) -> None:
    simulation.recipe_file.write_text("# a comment\n" + simulation.recipe_file.read_text())
    assert simulation.accept().recipe == "small"


def test_a_recipe_that_moved_is_named(simulation: Simulation, tmp_path: Path) -> None:
    place = tmp_path / "elsewhere"
    simulation.recipe_file.parent.rename(place)
    accepted = accept_run(
        newest(simulation), simulation.home, recipe=place / "small.yaml", track=False
    )
    assert accepted.file == place / "small.baseline.json"


def test_a_damaged_baseline_is_a_fault_and_accepting_mends_it(simulation: Simulation) -> None:
    for text in ("", "[]", '{"format": 9}', '{"format": 1}', "\udcff"):
        simulation.accept()
        simulation.baseline_file.write_bytes(text.encode("utf-8", "surrogateescape"))
        (fault,) = simulation.night().faults
        assert fault.kind == "baseline"
        assert str(simulation.baseline_file) in fault.message
        assert "accept a run: convkit accept RUN --note TEXT" in fault.message
    simulation.accept("mended")
    assert simulation.night().status == "green"


def test_the_accepted_run_itself_is_checked(simulation: Simulation) -> None:
    simulation.accept()
    folder = newest(simulation)
    record = read_record(folder)
    text = (folder / "result.json").read_text()
    (folder / "result.json").write_text(text.replace("3 cases", "9 cases"))
    (fault,) = simulation.night().faults
    assert fault.message == "the baseline's run changed: result.json: changed"
    # Sealed again, as somebody would who hides the change: its digest is not the accepted one.
    from convkit.host.record.provenance import write_provenance
    from convkit.host.record.recorded_materials import Materials

    write_provenance(folder, record, Materials())
    (fault,) = simulation.night().faults
    assert fault.message == "the baseline's run changed: provenance.json: not the one accepted"


def test_an_accepted_run_that_was_deleted_is_a_fault_where_it_was(simulation: Simulation) -> None:
    import shutil

    simulation.accept()
    folder = newest(simulation)
    shutil.rmtree(folder)
    (fault,) = simulation.night().faults
    assert fault.message.startswith(f"the baseline's run {folder.name} was deleted from")
    # On a machine that never had it, nothing is lost: the rest of the baseline is compared.
    folder.with_name(f"{folder.name}.accepted.json").unlink()
    result = simulation.night()
    assert result.status == "green"
    assert any(note.startswith("not reproduced: this home does not") for note in result.notes)


def test_version_control_remembers_a_baseline(simulation: Simulation) -> None:
    simulation.accept()
    place = simulation.recipe_file.parent

    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *identity, *arguments], cwd=place, check=True, capture_output=True)

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "baseline")
    git("rm", "-q", "small.baseline.json")
    git("commit", "-qm", "gone")
    for file in simulation.home.runs_of("small").glob("*.accepted.json"):
        file.unlink()
    (fault,) = simulation.night().faults
    assert fault.kind == "baseline"
    assert "small.baseline.json is missing, but commit " in fault.message


def test_a_retired_recipe_is_expected_no_longer(simulation: Simulation) -> None:
    simulation.accept()
    folder = newest(simulation)
    with pytest.raises(UsageError, match="say why small is retired"):
        retire_recipe(folder, simulation.home, note="", track=False)
    retire_recipe(folder, simulation.home, note="replaced", track=False)
    assert not simulation.baseline_file.exists()
    assert simulation.night().status == "green"
    simulation.recipe_file.rename(simulation.recipe_file.with_name("other.yaml"))
    assert [each.status for each in simulation.nightly().recipes] == ["green"]


def test_a_newer_tool_and_an_improvement_are_reported_and_fail_nothing(
    simulation: Simulation,
) -> None:
    simulation.accept()
    simulation.tools["onnxruntime"] = "1.32.0"
    simulation.changes["ort"] = lambda target: dataclasses.replace(target, size_bytes=500_000)
    result = simulation.night()
    assert result.status == "green"
    assert result.improvements == ("ort size_bytes 1000000 -> 500000 (-50 %)",)
    assert any(note.startswith("newer tool: onnxruntime 1.31.1 -> 1.32.0") for note in result.notes)


def test_a_better_class_that_was_reached_once_is_held(simulation: Simulation) -> None:
    simulation.accept()
    for likeness, status in (
        ("NUMERIC_OK", "green"),
        ("BIT_IDENTICAL", "green"),
        ("STRUCTURAL", "regressed"),
        ("STRUCTURAL", "regressed"),
        ("BIT_IDENTICAL", "green"),
    ):
        simulation.likeness = likeness
        assert simulation.night().status == status
    # What was reached is in the next baseline: a home that remembers nothing holds it as well.
    baseline = newest(simulation).parent / read_baseline(simulation.baseline_file).run
    accept_run(baseline, simulation.home, note="again", track=False)
    assert read_baseline(simulation.baseline_file).reproduced["ort"] == "BIT_IDENTICAL"


def test_the_command_prints_what_moves(simulation: Simulation) -> None:
    command = ["accept", "small", "--no-track", "--home", str(simulation.home.root)]
    done = CliRunner().invoke(app, command, env={"COLUMNS": "300"})
    assert done.exit_code == 0, done.output
    assert f"is the baseline of small: commit {simulation.baseline_file}" in done.output
    simulation.targets = ("ort",)
    simulation.night()
    refused = CliRunner().invoke(app, command)
    assert isinstance(refused.exception, UsageError)
    done = CliRunner().invoke(app, [*command, "--note", "why"], env={"COLUMNS": "300"})
    assert "accepted: target 'trt' was removed; it was verified in the baseline" in done.output
    assert json.loads(simulation.baseline_file.read_text())["note"] == "why"


def test_a_policy_holds_for_the_baselines_run(simulation: Simulation, tmp_path: Path) -> None:
    make_key("release", tmp_path)
    (tmp_path / "policy.yaml").write_text("trust: [{name: release, key: release.pub}]")
    simulation.accept()
    assert simulation.night().status == "green"
    simulation.policy = read_policy(tmp_path / "policy.yaml")
    result = simulation.night()
    assert result.status == "regressed"
    assert any("provenance.json: not signed" in fault.message for fault in result.faults)
