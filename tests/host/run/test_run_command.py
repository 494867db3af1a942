"""`convkit run` whole, in this environment (`--toolchain host`): real export, real onnxruntime, a
tiny seeded model.
"""

import dataclasses
import json
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from other_processes import ended_with_the_test, soon
from small_runs import HANGS, MODEL, codes, convkit, run, tensors, workers_of, write_recipe
from watched_workers import running_servers

from convkit.host.facts.code_digests import CodeDigests
from convkit.host.home import Home
from convkit.host.run.plan_command import forecast
from convkit.host.run.rejudging import parse_tolerance, rejudge
from convkit.host.run.run_folder import read_record
from convkit.host.run.run_options import RunOutcome
from convkit.host.store.store import Store
from convkit.protocol.errors import EXIT_FAILED


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, RunOutcome]:
    folder = tmp_path_factory.mktemp("finished")
    recipe = write_recipe(folder / "recipes")
    return recipe, folder / "home", run(recipe, folder / "home")


def test_a_quick_ladder_verifies_less_and_says_so(
    finished: tuple[Path, Path, RunOutcome], tmp_path: Path
) -> None:
    _, home, full = finished
    verify = {"tolerance": {"max_abs": 1e-5}, "ladder": "quick"}
    outcome = run(write_recipe(tmp_path, verify=verify), home)
    status = {stage.id: stage.status for stage in outcome.record.stages}
    assert status == {
        "export": "hit",
        "reference": "done",
        "build:ort": "hit",
        "verify:ort": "done",
    }
    assert outcome.record.status == "verified"
    (before,), (after,) = (each.record.targets[0].verifications for each in (full, outcome))
    assert [case.case for case in after.cases] == ["smallest", "typical", "padded", "masked-row"]
    left_out = {each.name for each in after.omitted}
    assert {"ragged", "largest", "off-typical", "mask-patterns", "batch", "extreme"} <= left_out
    assert [each.probe for each in after.probes] == [each.probe for each in before.probes]
    assert [each.case for each in after.invariance] == [each.case for each in before.invariance]


def test_a_run_verifies_and_leaves_its_folder(finished: tuple[Path, Path, RunOutcome]) -> None:
    _, _, outcome = finished
    assert (outcome.record.status, outcome.record.exit_code) == ("verified", 0)
    assert {path.name for path in outcome.folder.iterdir()} == {
        "evidence",
        "logs",
        "models",
        "provenance.json",
        "recipe.yaml",
        "report.html",
        "result.json",
    }
    assert read_record(outcome.folder) == outcome.record
    assert (outcome.folder / "models" / "ort" / "model.onnx").is_file()
    cases = [case.case for case in outcome.record.targets[0].verifications[0].cases]
    assert {
        "smallest",
        "typical",
        "padded",
        "ragged",
        "largest",
        "masked-row",
        "off-typical",
    } <= set(cases)


def test_the_built_model_shares_no_inode_with_the_store(
    finished: tuple[Path, Path, RunOutcome],
) -> None:
    _, home, outcome = finished
    build = next(stage for stage in outcome.record.stages if stage.kind == "build")
    store = Store(home / "store")
    entry = store.files(build.artifact or "")["model.onnx"]
    built = outcome.folder / "models" / "ort" / "model.onnx"
    assert built.read_bytes() == store.object(entry.sha256).read_bytes()
    for path in (built, store.object(entry.sha256)):
        assert path.stat().st_nlink == 1
        assert not path.is_symlink()


def test_what_is_prepared_for_the_end_never_ends_a_run(
    finished: tuple[Path, Path, RunOutcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It runs in a thread of its own: whatever is wrong is reported where it matters."""

    def broken(_code: str) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("convkit.host.report.report_file.prepare_templates", broken)
    outcome = run(write_recipe(tmp_path, verify={"tolerance": {"max_abs": 2e-5}}), finished[1])
    assert not outcome.up_to_date
    assert (outcome.folder / "report.html").is_file()
    assert "no space left" not in capfd.readouterr().err


def test_a_second_run_is_up_to_date_and_names_the_run_that_made_it(
    finished: tuple[Path, Path, RunOutcome],
) -> None:
    recipe, home, outcome = finished
    again = run(recipe, home)
    assert again.up_to_date
    assert again.folder == outcome.folder
    assert all(row.state == "hit" for row in forecast(recipe, Home(home), (), "host"))


def test_other_code_of_convkit_s_own_judges_again_and_runs_nothing(
    finished: tuple[Path, Path, RunOutcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What judges and explains is part of no stage: a new release may find more."""
    recipe, home, earlier = finished
    monkeypatch.setattr(CodeDigests, "own", lambda _: "another release's")
    outcome = run(recipe, home)
    assert not outcome.up_to_date
    assert outcome.folder != earlier.folder
    assert {stage.status for stage in outcome.record.stages} == {"hit"}


@pytest.mark.thorough
def test_a_changed_tolerance_judges_again_and_runs_nothing(
    finished: tuple[Path, Path, RunOutcome], tmp_path: Path
) -> None:
    recipe, home, _ = finished
    changed = write_recipe(recipe.parent, verify={"tolerance": {"max_abs": 1e-30, "cosine": 0.5}})
    try:
        outcome = run(changed, home)
    finally:
        write_recipe(recipe.parent)
    assert not outcome.up_to_date
    assert {stage.status for stage in outcome.record.stages} == {"hit"}
    assert outcome.record.exit_code == EXIT_FAILED
    assert codes(outcome) == {"N101"}


def test_a_changed_key_runs_its_stages_and_the_plan_says_why(
    finished: tuple[Path, Path, RunOutcome],
) -> None:
    recipe, home, _ = finished
    write_recipe(recipe.parent, export={"exporter": "torchscript", "opset": 16})
    try:
        rows = {row.stage: row for row in forecast(recipe, Home(home), (), "host")}
    finally:
        write_recipe(recipe.parent)
    assert rows["export"].reason == "export.opset changed: 17 -> 16"
    assert rows["reference"].state == "hit"
    assert "export must run" in rows["build:ort"].reason


def test_a_stored_run_is_judged_again_without_any_model(
    finished: tuple[Path, Path, RunOutcome],
) -> None:
    _, _, outcome = finished
    assert rejudge(outcome.folder, None).status == "verified"
    strict = rejudge(outcome.folder, parse_tolerance(["max_abs=1e-30"]))
    assert (strict.status, strict.exit_code) == ("failed", 1)
    assert rejudge(outcome.folder, parse_tolerance(["atol=1e-6", "rtol=1e-4"])).status == "verified"
    assert rejudge(outcome.folder, parse_tolerance(["atol=0", "rtol=1e-12"])).status == "failed"


@pytest.mark.thorough
def test_force_runs_everything_again_to_the_same_artifacts(
    finished: tuple[Path, Path, RunOutcome],
) -> None:
    recipe, home, outcome = finished
    forced = run(recipe, home, force=True)
    assert {stage.status for stage in forced.record.stages} == {"done"}
    assert [stage.artifact for stage in forced.record.stages] == [
        stage.artifact for stage in outcome.record.stages
    ]
    assert "R101" not in {finding.code for finding in forced.record.findings}


def test_a_damaged_object_is_made_again(finished: tuple[Path, Path, RunOutcome]) -> None:
    recipe, home, outcome = finished
    store = Store(home / "store")
    export = next(stage for stage in outcome.record.stages if stage.kind == "export")
    entry = store.files(export.artifact or "")["model.onnx"]
    store.object(entry.sha256).unlink()
    healed = run(recipe, home)
    assert healed.record.status == "verified"
    assert store.object(entry.sha256).is_file()


SWAPPED = MODEL.replace("def forward(self, ids, mask)", "def forward(self, mask, ids)")
RENAMED = MODEL.replace("return torch.tanh(", "return dict(z=torch.tanh(").replace(
    "unsqueeze(-1)))", "unsqueeze(-1))))"
)
DROPPED = MODEL.replace("* mask.unsqueeze(-1)", "")
BAKED = MODEL.replace(
    "return torch.tanh(",
    "ids = ids.reshape(int(ids.shape[0]), -1)[:, torch.arange(int(ids.shape[1]))]\n        return"
    " torch.tanh(",
)


FAULTS = {
    "wrong input order": (SWAPPED, {}, "C103", "mask"),
    "a dropped input": (DROPPED, {}, "C101", "mask"),
    "a wrong dtype": (
        MODEL,
        tensors(ids={"dtype": "float32", "sample": {"uniform": [0.0, 9.0]}}),
        "C105",
        "ids",
    ),
    "an output renamed": (RENAMED, {}, "C204", "y"),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.sampled(2)
def test_a_recipe_at_fault_gets_its_finding_and_exit_code_1(tmp_path: Path, fault: str) -> None:
    model, changes, code, name = FAULTS[fault]
    outcome = run(write_recipe(tmp_path, model, **changes), tmp_path / "home")
    found = [finding for finding in outcome.record.findings if finding.code == code]
    assert found, outcome.record.findings
    assert name in found[0].message
    assert outcome.record.exit_code == EXIT_FAILED
    assert found[0].remedy is not None


@pytest.mark.thorough
def test_a_broken_factory_breaks_its_stages_and_is_told_in_words(tmp_path: Path) -> None:
    outcome = run(
        write_recipe(tmp_path, "def build():\n    raise ValueError('no weights')\n"),
        tmp_path / "home",
    )
    assert outcome.record.exit_code == 3
    assert any("no weights" in finding.message for finding in outcome.record.findings)
    assert (outcome.folder / "result.json").is_file()
    again = run(tmp_path / "recipe.yaml", tmp_path / "home")
    assert not again.up_to_date  # failures are never kept


CRASH = "import os, signal\ndef build():\n    os.kill(os.getpid(), signal.SIGSEGV)\n"
KILLED = CRASH.replace("SIGSEGV", "SIGKILL")


@pytest.mark.parametrize(("model", "code"), [(CRASH, "E201"), (KILLED, "E202")])
def test_a_worker_that_dies_is_a_finding_and_the_run_is_kept(
    tmp_path: Path, model: str, code: str
) -> None:
    outcome = run(write_recipe(tmp_path, model), tmp_path / "home")
    assert code in codes(outcome)
    assert outcome.record.exit_code == 3
    assert list(Store(tmp_path / "home" / "store").verify()) == []


def test_a_worker_that_hangs_is_stopped_at_the_limit(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, HANGS, verify={"tolerance": {"max_abs": 1e-5}, "timeout": 2})
    outcome = run(recipe, tmp_path / "home")
    assert "E203" in codes(outcome)
    assert outcome.record.ended - outcome.record.started < 300, "the worker was waited for"


@pytest.mark.slow
@pytest.mark.thorough
def test_a_run_killed_at_any_moment_goes_on_where_it_was_cut(tmp_path: Path) -> None:
    recipe, home = write_recipe(tmp_path), tmp_path / "home"
    moments = random.Random(7)
    for _ in range(6):
        process = convkit("run", recipe, "--toolchain", "host", "--home", home, "--no-track")
        with ended_with_the_test(process):
            time.sleep(moments.uniform(0.2, 3.5))
        assert list(Store(home / "store").verify()) == []
    assert soon(lambda: not workers_of(home)), "a worker outlives its run"
    outcome = run(recipe, home)
    assert outcome.record.status == "verified"
    assert list(Store(home / "store").verify()) == []
    assert Store(home / "store").sweep() == 0
    assert not list((home / "store" / "staging").iterdir())


@pytest.mark.slow
@pytest.mark.thorough
def test_ctrl_c_stops_the_workers_and_keeps_what_had_finished(tmp_path: Path) -> None:
    recipe, home = write_recipe(tmp_path, HANGS), tmp_path / "home"
    process = convkit("run", recipe, "--toolchain", "host", "--home", home, "--no-track")
    with ended_with_the_test(process):
        assert soon(lambda: bool(workers_of(home)), 120)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted" in output
    assert "Traceback" not in output
    assert workers_of(home) == []


@pytest.mark.thorough
def test_two_runs_at_once_share_the_work(tmp_path: Path) -> None:
    recipe, home = write_recipe(tmp_path), tmp_path / "home"
    processes = [
        convkit("run", recipe, "--toolchain", "host", "--home", home, "--no-track", "--json")
        for _ in range(2)
    ]
    with ended_with_the_test(*processes):
        records = [json.loads(process.communicate(timeout=240)[0]) for process in processes]
    assert [record["status"] for record in records] == ["verified", "verified"]
    exports = [
        stage["status"]
        for record in records
        for stage in record["stages"]
        if stage["id"] == "export"
    ]
    assert sorted(exports) in (["done", "hit"], ["done", "done"])
    assert exports.count("done") == 1


@pytest.mark.thorough
def test_servers_that_other_runs_share_outlive_a_run(tmp_path: Path) -> None:
    for name in ("first", "second"):  # which would otherwise import all tools again
        run(write_recipe(tmp_path), tmp_path / name)
        assert running_servers(), name


@pytest.mark.thorough
def test_a_read_only_home_is_told_in_words(tmp_path: Path) -> None:
    blocked = tmp_path / "home"
    blocked.write_text("a file where the folder should be")
    process = convkit(
        "run", write_recipe(tmp_path), "--toolchain", "host", "--home", blocked, "--no-track"
    )
    with ended_with_the_test(process):
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 3
    assert "Traceback" not in output
    assert str(blocked) in output


UP_TO_DATE = """
import sys
from pathlib import Path
from convkit.cli.commands import run_and_plan as running
import typer
try:
    running.run(Path(sys.argv[1]), toolchain="host", jobs=2, home=Path(sys.argv[2]))
except typer.Exit as exit:
    assert exit.exit_code == 0
heavy = {"torch", "mlflow", "numpy", "onnx", "onnxruntime"}
print(sorted({name.split(".")[0] for name in sys.modules} & heavy))
"""


@pytest.mark.thorough
def test_an_up_to_date_run_imports_neither_torch_nor_mlflow(
    finished: tuple[Path, Path, RunOutcome],
) -> None:
    recipe, home, _ = finished
    run(recipe, home)
    done = subprocess.run(
        [sys.executable, "-c", UP_TO_DATE, str(recipe), str(home)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip().endswith("[]")
    assert "up to date" in done.stdout.lower()


def test_records_of_another_format_are_refused(
    finished: tuple[Path, Path, RunOutcome], tmp_path: Path
) -> None:
    from convkit.protocol.errors import ConvkitError
    from convkit.protocol.json_codec import encode

    (tmp_path / "result.json").write_text(
        json.dumps(encode(dataclasses.replace(finished[2].record, format=99)))
    )
    with pytest.raises(ConvkitError, match="format 99"):
        read_record(tmp_path)
