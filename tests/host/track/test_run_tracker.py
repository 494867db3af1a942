"""Against the real MLflow, in databases of their own."""

import dataclasses
import hashlib
import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from other_processes import ended_with_the_test
from records import build_record, verified_record
from run_folders import write_run

from convkit.host.track import run_artifacts
from convkit.host.track.run_tracker import prepare
from convkit.host.track.tracking_location import find_location, tracking_error
from convkit.protocol.errors import TrackingError


@pytest.fixture
def home(empty_database, tmp_path):
    """Return a home with an empty database."""
    home = tmp_path / "runs"
    empty_database(find_location(None, home), home)
    return home


def children_of(tracker, tracked):
    found = tracker.client.search_runs(
        [tracked.experiment_id],
        filter_string=f"tags.`mlflow.parentRunId` = '{tracked.parent_run_id}'",
    )
    return {run.info.run_name: run for run in found}


def test_a_run_is_logged_whole(home):
    record = build_record()
    folder = write_run(home, record)
    tracker = prepare(None, home)
    tracked = tracker.log(record, folder)
    assert tracked.uri == f"sqlite:///{home}/mlflow.db"
    assert tracked.link is None

    parent = tracker.client.get_run(tracked.parent_run_id)
    assert parent.info.status == "FAILED"
    assert parent.info.start_time == 1_760_000_000_000
    assert parent.info.end_time == 1_760_000_021_500
    assert parent.data.params["export.opset"] == "18"
    assert parent.data.metrics["ort-cpu/max_abs_err"] == pytest.approx(1.82e-5)
    assert "1 verified, 1 failed, 1 skipped" in parent.data.tags["mlflow.note.content"]

    children = children_of(tracker, tracked)
    assert set(children) == {stage.id for stage in record.stages}
    verification = children["verify:ort-cpu@1.31.0"]
    assert verification.info.status == "FINISHED"
    assert verification.info.start_time == 1_760_000_015_200
    history = tracker.client.get_metric_history(
        verification.info.run_id, "verify/last_hidden_state/by_case/max_abs_err"
    )
    assert sorted((point.step, point.value) for point in history) == [
        (0, pytest.approx(2.2e-6)),
        (1, pytest.approx(8.4e-6)),
        (2, pytest.approx(1.82e-5)),
    ]
    assert json.loads(verification.data.tags["mlflow.loggedArtifacts"]) == [
        {"path": "cases.json", "type": "table"}
    ]


@pytest.mark.thorough
def test_files_are_there_and_models_are_copies_that_share_no_inode(home):
    record = build_record()
    folder = write_run(home, record)
    tracker = prepare(None, home)
    run = tracker.client.get_run(tracker.log(record, folder).parent_run_id)
    names = {item.path for item in tracker.client.list_artifacts(run.info.run_id)}
    assert names == {"recipe.yaml", "result.json", "report.html", "logs", "models", "models.json"}
    kept = run_artifacts.local_folder(run.info.artifact_uri)
    assert kept.is_relative_to(home / "mlartifacts" / "convkit-bert")
    for target in record.targets:
        for file in target.files:
            assert (kept / file).read_bytes() == (folder / file).read_bytes()
            assert (kept / file).stat().st_nlink == 1
            assert not (kept / file).is_symlink()
    assert not (kept / "result.json").samefile(folder / "result.json")
    assert json.loads((kept / "models.json").read_text())["ort-cpu"]["how"] == "copied"


@pytest.mark.thorough
def test_models_are_registered_with_their_metrics_and_no_copy(home):
    record = build_record()
    tracker = prepare(None, home)
    tracked = tracker.log(record, write_run(home, record))
    models = {
        model.name: model for model in tracker.client.search_logged_models([tracked.experiment_id])
    }
    assert set(models) == {"bert-ort-cpu", "bert-ort-optimized"}
    good = models["bert-ort-cpu"]
    assert good.tags["mlflow.model.isExternal"] == "true"
    assert {metric.key for metric in good.metrics} >= {"ort-cpu/max_abs_err", "ort-cpu/cosine"}
    assert str(good.status) == "READY"
    wrong = models["bert-ort-optimized"]
    assert str(wrong.status) == "FAILED"
    assert "verified" in good.tags["mlflow.note.content"]
    assert "failed: C110 'input" in wrong.tags["mlflow.note.content"]
    tags = tracker.client.get_experiment(tracked.experiment_id).tags
    note = tags["mlflow.note.content"]
    assert note.startswith("Runs of the convkit recipe **bert**: [verdict, worst error")
    assert f"(#/experiments/{tracked.experiment_id}/runs?viewStateShareKey=convkit&" in note
    view = json.loads(tags["mlflow.sharedViewState.convkit"])
    run = tracker.client.get_run(tracked.parent_run_id)
    shown = {*(f"tags.`{key}`" for key in run.data.tags)}
    shown |= {f"metrics.`{key}`" for key in run.data.metrics}
    # The figure furthest beyond its limit is NaN here, which has none.
    assert {*view["selectedColumns"]} - shown == {"metrics.`error_of_limit`"}
    found = tracker.client.search_runs([tracked.experiment_id], view["searchFilter"])
    assert {each.data.tags["convkit.role"] for each in found} == {"run", "verification"}


def test_what_a_run_was_verified_on_is_its_input(home):
    record = build_record()
    stages = tuple(
        dataclasses.replace(each, artifact="7a" * 32) if each.kind == "reference" else each
        for each in record.stages
    )
    record = dataclasses.replace(record, stages=stages)
    tracker = prepare(None, home)
    run = tracker.client.get_run(tracker.log(record, write_run(home, record)).parent_run_id)
    (data,) = run.inputs.dataset_inputs
    assert (data.dataset.name, data.dataset.digest) == ("bert cases", "7a" * 18)
    assert json.loads(data.dataset.profile)["cases"][:3] == ["smallest", "typical", "padded"]
    assert [tag.value for tag in data.tags] == ["verification"]


def test_a_skipped_targets_model_is_pending_not_failed(home):
    record = build_record()
    good, *others = record.targets
    skipped = dataclasses.replace(good, status="skipped")
    record = dataclasses.replace(record, targets=(skipped, *others))
    tracker = prepare(None, home)
    tracked = tracker.log(record, write_run(home, record))
    models = tracker.client.search_logged_models([tracked.experiment_id])
    (model,) = (each for each in models if each.name == "bert-ort-cpu")
    assert str(model.status) == "PENDING"


@pytest.mark.thorough
def test_logging_again_finds_the_run(home):
    record = build_record()
    folder = write_run(home, record)
    tracker = prepare(None, home)
    first = tracker.log(record, folder)
    assert prepare(None, home).log(record, folder) == first
    assert len(tracker.client.search_runs([first.experiment_id])) == 1 + len(record.stages)


@pytest.mark.thorough
def test_a_logging_that_was_cut_short_is_done_again(home, monkeypatch):
    record = build_record()
    folder = write_run(home, record)
    tracker = prepare(None, home)
    monkeypatch.setattr("convkit.host.track.run_tracker.child_entries", lambda _record: 1 / 0)
    with pytest.raises(ZeroDivisionError):  # a bug is not dressed up as MLflow's
        tracker.log(record, folder)
    monkeypatch.undo()
    tracked = tracker.log(record, folder)
    active = tracker.client.search_runs([tracked.experiment_id])
    assert len(active) == 1 + len(record.stages)
    assert tracker.client.get_run(tracked.parent_run_id).data.tags["convkit.logged"] == "complete"


@pytest.mark.thorough
def test_small_models_are_copied_and_large_ones_named(home, monkeypatch):
    record = build_record()
    folder = write_run(home, record)
    (folder / "models/ort-optimized/model.onnx").write_bytes(b"x" * 2000)
    monkeypatch.setattr(run_artifacts, "LARGE_MODEL_BYTES", 1500)
    tracker = prepare(None, home)
    run = tracker.client.get_run(tracker.log(record, folder).parent_run_id)
    kept = run_artifacts.local_folder(run.info.artifact_uri)
    places = json.loads((kept / "models.json").read_text())
    assert places["ort-cpu"]["how"] == "copied"
    copy = kept / "models/ort-cpu/model.onnx.data"
    assert copy.read_bytes() == (folder / "models/ort-cpu/model.onnx.data").read_bytes()
    assert not copy.samefile(folder / "models/ort-cpu/model.onnx.data")
    digest = hashlib.sha256(b"x" * 2000).hexdigest()
    assert places["ort-optimized"] == {
        "how": "external",
        "path": f"{folder}/models/ort-optimized",
        "digests": {"models/ort-optimized/model.onnx": f"sha256:{digest}"},
    }
    assert not (kept / "models/ort-optimized").exists()


@pytest.mark.thorough
def test_files_that_are_gone_are_left_out(home):
    record = build_record()
    folder = write_run(home, record)
    shutil.rmtree(folder / "models")
    tracker = prepare(None, home)
    run = tracker.client.get_run(tracker.log(record, folder).parent_run_id)
    kept = run_artifacts.local_folder(run.info.artifact_uri)
    assert not (kept / "models.json").exists()


@pytest.mark.parametrize("file", ["../../secret", "/etc/passwd"])
def test_files_outside_the_run_are_refused(home, file):
    record = build_record()
    folder = write_run(home, record)
    target = dataclasses.replace(record.targets[0], files=(file,))
    with pytest.raises(TrackingError, match="is outside the run's folder"):
        prepare(None, home).log(build_record(targets=(target,)), folder)


@pytest.mark.thorough
def test_it_can_be_prepared_in_a_thread(home):
    trackers = []
    thread = threading.Thread(target=lambda: trackers.append(prepare(None, home)))
    thread.start()
    thread.join()
    record = verified_record()
    assert trackers[0].log(record, write_run(home, record)).experiment_id


@pytest.mark.thorough
def test_long_and_odd_values_are_taken(home):
    record = build_record(
        description="d" * 20_000,
        command=("convkit", "run", "x" * 9000),
        recipe_text="name: bert\n'odd key [~]!': " + "v" * 9000,
        host={"platform": "p", "nested": {"a": [1]}},
    )
    tracker = prepare(None, home)
    run = tracker.client.get_run(tracker.log(record, write_run(home, record)).parent_run_id)
    assert len(run.data.tags["mlflow.source.name"]) == 8000
    assert run.data.tags["mlflow.note.content"].endswith("the rest is in result.json]")
    (odd,) = [name for name in run.data.params if name.startswith("odd_key")]
    assert run.data.params[odd].startswith("v" * 5000)


@pytest.mark.thorough
def test_a_deleted_experiment_is_not_brought_back_in_silence(home):
    record = build_record()
    folder = write_run(home, record)
    tracker = prepare(None, home)
    tracked = tracker.log(record, folder)
    tracker.client.delete_experiment(tracked.experiment_id)
    with pytest.raises(TrackingError, match=r"'convkit/bert' was deleted.*restore --experiment-id"):
        tracker.log(record, folder)


@pytest.mark.thorough
def test_the_environment_says_where(home, monkeypatch, tmp_path):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{home}/mlflow.db")
    elsewhere = tmp_path / "elsewhere"
    record = verified_record()
    tracker = prepare(None, elsewhere)
    assert tracker.log(record, write_run(elsewhere, record)).uri == f"sqlite:///{home}/mlflow.db"
    assert not (elsewhere / "mlflow.db").exists()
    assert find_location("http://given:5000", elsewhere).uri == "http://given:5000"


def _set_revision(path: Path, revision: str) -> None:
    connection = sqlite3.connect(path)
    connection.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    connection.commit()
    connection.close()


def _make_foreign(path: Path) -> None:
    path.unlink()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE recipes (id INTEGER)")
    connection.commit()
    connection.close()


DAMAGES = {
    "text": lambda path: path.write_bytes(b"this is not a database" * 100),
    "header": lambda path: path.write_bytes(b"SQLite format 3\x00" + b"\xff" * 4096),
    "newer": lambda path: _set_revision(path, "ffff00001111"),
    "older": lambda path: _set_revision(path, "451aebb31d03"),  # MLflow's second schema, of 2019
    "foreign": _make_foreign,
}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("text", "cannot be read as a database"),
        ("header", "cannot be read as a database"),
        ("newer", "written by a newer MLflow .schema ffff00001111"),
        ("older", r"written by an older MLflow(.|\n)*mlflow db upgrade sqlite:///"),
        ("foreign", "not an MLflow database .recipes"),
    ],
)
def test_another_kind_of_database_is_refused_and_left_as_it_is(home, damage, message):
    path = home / "mlflow.db"
    DAMAGES[damage](path)
    before = path.read_bytes()
    with pytest.raises(TrackingError, match=message) as caught:
        prepare(None, home)
    assert str(path) in str(caught.value)
    assert "'convkit track RUN' logs it later" in str(caught.value)
    assert path.read_bytes() == before


def test_a_database_lost_while_running_is_reported(home):
    tracker = prepare(None, home)
    tracker.client._tracking_client.store.engine.dispose()
    (home / "mlflow.db").write_bytes(b"gone" * 1000)
    record = build_record()
    with pytest.raises(TrackingError, match="MLflow at sqlite:///"):
        tracker.log(record, write_run(home, record))


def test_a_server_that_refuses_is_reported_at_once(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    began = time.monotonic()
    with pytest.raises(
        TrackingError, match=rf"MLflow at http://127.0.0.1:{port}: (.|\n)*convkit track RUN"
    ):
        prepare(f"http://127.0.0.1:{port}", tmp_path)
    assert time.monotonic() - began < 60  # MLflow by itself tries for minutes


@pytest.mark.slow
@pytest.mark.thorough
def test_a_server_that_never_answers_is_given_up_on(tmp_path):
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as silent:  # connections are taken, and nothing is ever said
        began = time.monotonic()
        with pytest.raises(TrackingError, match=r"timeout|timed out|retries"):
            prepare(f"http://127.0.0.1:{silent.getsockname()[1]}", tmp_path)
    assert time.monotonic() - began < 60  # MLflow by itself tries for minutes


def test_passwords_are_not_shown(tmp_path):
    location = find_location("https://user:s3cret@127.0.0.1:9/x", tmp_path)
    assert location.shown == "https://user:***@127.0.0.1:9/x"
    assert "s3cret" not in str(
        tracking_error(location, OSError(f"cannot reach {location.uri}: s3cret"))
    )
    assert "s3cret" not in location.run_link("1", "a")


@pytest.mark.parametrize(
    "uri", ["nonsense://x", "file:///tmp/x", "postgresql://nobody@127.0.0.1:9/x"]
)
def test_any_other_address_that_does_not_work_is_the_users_error(uri, tmp_path):
    with pytest.raises(TrackingError, match="MLflow at"):
        prepare(uri, tmp_path)


_QUIET_SCRIPT = """
import os, sys
from pathlib import Path
before = dict(os.environ)
sys.path.insert(0, sys.argv[2])
from records import build_record
from run_folders import write_run
from convkit.host.track.run_tracker import prepare
home = Path(sys.argv[1])
tracker = prepare(None, home)
record = build_record()
tracker.log(record, write_run(home, record))
try:
    prepare("http://127.0.0.1:9", home)
except Exception as error:
    assert type(error).__name__ == "TrackingError", error
assert dict(os.environ) == before, "the environment was changed"
from mlflow.telemetry import get_telemetry_client
assert get_telemetry_client() is None
import threading
assert not [thread for thread in threading.enumerate() if "elemetry" in thread.name]
"""


@pytest.mark.slow
@pytest.mark.thorough
def test_mlflow_is_a_quiet_guest(tmp_path):
    # In its own process, without what makes MLflow hold back in tests; an agent's mark makes it
    # talk.
    environment = {
        "HOME": str(tmp_path / "user"),
        "PATH": os.environ["PATH"],
        "AGENT": "x",
        "PYTHONPATH": str(_ROOT),
    }
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            _QUIET_SCRIPT,
            str(tmp_path / "runs"),
            str(_ROOT / "tests" / "tools"),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "user").exists()  # nothing written to the user's home either


@pytest.mark.slow
@pytest.mark.thorough
def test_processes_that_come_first_together_make_one_database(tmp_path):
    script = (
        "import sys; from pathlib import Path; from convkit.host.track.run_tracker import prepare; "
        "prepare(None, Path(sys.argv[1]))"
    )
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    home = tmp_path / "runs"
    home.mkdir()
    (home / "mlflow.db.99.part").write_bytes(b"left behind by a process that was killed")
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(home)], env=environment, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    with ended_with_the_test(*processes):
        errors = [process.communicate(timeout=240)[1].decode() for process in processes]
    assert [process.returncode for process in processes] == [0, 0], errors
    assert prepare(None, home).client.get_experiment_by_name("Default") is not None
    assert list(home.glob("*.part*")) == []


_ROOT = Path(__file__).parents[3]
