"""Stages on a real Dask cluster: a scheduler and worker processes, each with its own home."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import convkit
from fleet_runs import run, write_recipe
from small_fleet import SmallFleet
from small_runs import MODEL

from convkit.host.fleet import dask_cluster
from convkit.host.fleet.fleet_worker import fleet_status
from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome
from convkit.host.store.shared_store import SharedStore
from convkit.host.store.store import Store
from convkit.protocol.errors import FleetError, UsageError

pytestmark = [
    pytest.mark.slow,
    # Dask's client leaves its sockets to the collector when the other end was killed.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallFleet]:
    with SmallFleet(tmp_path_factory.mktemp("fleet"), 2) as started:
        yield started


# Whole runs, with the real worker.


def test_a_run_on_a_fleet_is_the_run_of_one_machine(fleet: SmallFleet, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    outcome = run(recipe, tmp_path / "home", fleet)
    assert (outcome.record.status, outcome.record.exit_code) == ("verified", 0), (
        outcome.record.stages
    )
    assert outcome.record.host["fleet"] == fleet.address
    assert all("(on w" in stage.reason for stage in outcome.record.stages)
    assert (outcome.folder / "models" / "ort" / "model.onnx").is_file()
    assert fleet.fork_servers(), "every stage of a fleet imports its tools anew"
    alone = run_recipe(RunOptions(recipe, Home(tmp_path / "alone"), toolchain="host", track=False))
    built = {
        stage.id: (stage.key, stage.artifact)
        for stage in outcome.record.stages
        if stage.kind != "verify"
    }
    assert {
        stage.id: (stage.key, stage.artifact) for stage in alone.record.stages if stage.id in built
    } | {
        "reference": built["reference"]  # holds seconds
    } == built
    assert run(recipe, tmp_path / "home", fleet).up_to_date

    other = run(recipe, tmp_path / "another-home", fleet)
    assert {stage.status for stage in other.record.stages} == {"hit"}, (
        "another machine finds all in the shared store"
    )
    assert {stage.artifact for stage in other.record.stages} == {
        stage.artifact for stage in outcome.record.stages
    }


@pytest.mark.thorough
def test_what_was_made_here_before_is_pushed_for_the_workers(
    fleet: SmallFleet, tmp_path: Path
) -> None:
    recipe, home = (
        write_recipe(tmp_path, verify={"seed": 4, "tolerance": {"max_abs": 1e-5}}),
        tmp_path / "home",
    )
    run_recipe(RunOptions(recipe, Home(home), toolchain="host", track=False))
    targets = {"basic": {"runtime": "onnxruntime", "optimization": "basic"}}
    recipe = write_recipe(
        tmp_path, verify={"seed": 4, "tolerance": {"max_abs": 1e-5}}, targets=targets
    )
    outcome = run(recipe, home, fleet)
    assert outcome.record.status == "verified"
    assert [stage.status for stage in outcome.record.stages] == ["hit", "hit", "done", "done"]


@pytest.mark.thorough
def test_a_worker_may_share_the_run_s_home(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, verify={"seed": 8, "tolerance": {"max_abs": 1e-5}})
    with SmallFleet(tmp_path / "own", 1) as own:
        outcome = run(recipe, own.folder / "home-w0", own)
    assert outcome.record.status == "verified"
    assert {stage.status for stage in outcome.record.stages} == {"done"}


@pytest.mark.thorough
def test_a_run_through_a_bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server_of = pytest.importorskip("moto.server", reason="no local S3 server")
    pytest.importorskip("s3fs", reason="no s3fs")
    import fsspec

    server = server_of.ThreadedMotoServer(port=0)
    server.start()
    try:
        host, port = server.get_host_and_port()
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("models")
        recipe = write_recipe(tmp_path)
        with SmallFleet(tmp_path / "fleet", 2) as fleet:
            outcome = run(recipe, tmp_path / "home", fleet, shared_store="s3://models/convkit")
            other = run(recipe, tmp_path / "other", fleet, shared_store="s3://models/convkit")
    finally:
        server.stop()
        fsspec.get_filesystem_class("s3").clear_instance_cache()
    assert outcome.record.status == "verified"
    assert {stage.status for stage in outcome.record.stages} == {"done"}
    assert {stage.status for stage in other.record.stages} == {"hit"}


@pytest.mark.thorough
def test_a_broken_stage_is_told_as_on_one_machine(fleet: SmallFleet, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    (tmp_path / "models" / "small.py").write_text(
        MODEL.replace("torch.tanh(", "torch.no_such_function(")
    )
    record = run(recipe, tmp_path / "home", fleet).record
    assert record.exit_code == 3
    reference = next(stage for stage in record.stages if stage.id == "reference")
    assert reference.status == "broken"
    assert "no_such_function" in str(reference.error)
    assert SharedStore((fleet.folder / "shared").as_uri()).record(reference.key) is None, (
        "failures are never kept"
    )


@pytest.mark.thorough
def test_forced_stages_run_and_the_first_record_stands(fleet: SmallFleet, tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, verify={"seed": 5, "tolerance": {"max_abs": 1e-5}})
    first = run(recipe, tmp_path / "home", fleet).record
    forced = run(recipe, tmp_path / "home", fleet, force=True).record
    assert {stage.status for stage in forced.stages} == {"done"}
    assert [stage.artifact for stage in forced.stages] == [stage.artifact for stage in first.stages]
    assert not [finding for finding in forced.findings if finding.code == "R101"], (
        "the reference holds seconds"
    )


@pytest.mark.thorough
def test_an_unmet_tag_is_skipped_at_once(fleet: SmallFleet, tmp_path: Path) -> None:
    targets = {
        "ort": {"runtime": "onnxruntime"},
        "cuda": {"runtime": "onnxruntime", "device": "cuda"},
    }
    recipe = write_recipe(
        tmp_path, targets=targets, verify={"seed": 6, "tolerance": {"max_abs": 1e-5}}
    )
    outcome = run_stubbed_cuda(recipe, tmp_path / "home", fleet)
    stages = {stage.id: stage for stage in outcome.record.stages}
    build = stages["build:cuda"]
    assert build.status == "skipped"
    assert str(build.error).startswith("SKIPPED_NO_WORKER: no worker of the fleet has CUDA")
    assert [finding.code for finding in build.findings] == ["E101"]
    assert stages["verify:cuda"].status == "blocked"
    assert stages["verify:ort"].status == "done"
    assert {target.name: target.status for target in outcome.record.targets} == {
        "ort": "verified",
        "cuda": "skipped",
    }


def run_stubbed_cuda(recipe: Path, home: Path, fleet: SmallFleet) -> RunOutcome:
    """Run a recipe with a CUDA target in an environment that has onnxruntime for the CPU only."""
    from convkit.host.facts import planning_facts

    real = planning_facts.host_packages
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            planning_facts,
            "host_packages",
            lambda spec: {} if "onnxruntime-gpu" in str(spec.requirements) else real(spec),
        )
        return run(recipe, home, fleet)


@pytest.mark.thorough
def test_a_corrupted_object_in_the_shared_store_is_refused_by_name(
    fleet: SmallFleet, tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path, verify={"seed": 7, "tolerance": {"max_abs": 1e-5}})
    shared = tmp_path / "shared"
    first = run(recipe, tmp_path / "home", fleet, shared_store=shared.as_uri()).record
    export = next(stage for stage in first.stages if stage.id == "export")
    entry = Store(tmp_path / "home" / "store").files(str(export.artifact))["model.onnx"]
    damaged = shared / "objects" / entry.sha256[:2] / entry.sha256
    damaged.chmod(0o644)
    damaged.write_bytes(b"x" * entry.size)
    record = run(recipe, tmp_path / "other", fleet, shared_store=shared.as_uri()).record
    broken = next(stage for stage in record.stages if stage.id == "export")
    assert broken.status == "broken"
    assert f"{entry.sha256}: damaged: the bytes do not match the digest" in str(broken.error)
    assert record.exit_code == 3


@pytest.mark.thorough
def test_workers_that_would_make_something_else_refuse(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path)
    preload = tmp_path / "preload.py"
    preload.write_text(
        "from convkit.host.facts.code_digests import CodeDigests\n"
        "CodeDigests.stage = lambda *_: 'other'\n"
    )
    with SmallFleet(tmp_path / "fleet", 1, preload=preload) as fleet:
        record = run(recipe, tmp_path / "home", fleet).record
    assert record.exit_code == 3
    assert "convkit's own code changed" in str(record.stages[0].error)
    assert "Install the same convkit" in str(record.stages[0].error)


def test_absolute_paths_and_a_store_without_a_fleet_are_refused(
    fleet: SmallFleet, tmp_path: Path
) -> None:
    recipe = write_recipe(tmp_path)
    call = f"{tmp_path / 'models' / 'small.py'}:build"
    absolute = write_recipe(tmp_path, model={"factory": {"call": call, "seed": 3}})
    with pytest.raises(FleetError, match=r"model\.factory\.call: .*absolute path"):
        run(absolute, tmp_path / "home", fleet)
    with pytest.raises(UsageError, match="--scheduler"):
        run_recipe(RunOptions(recipe, Home(tmp_path / "home"), shared_store="file:///x"))


def test_no_scheduler_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dask_cluster, "_CONNECT_SECONDS", 1.0)
    with pytest.raises(FleetError, match="no Dask scheduler answers there"):
        fleet_status("tcp://127.0.0.1:1")
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(FleetError, match=r"pip install -e .*\[fleet\]"):
        fleet_status("tcp://127.0.0.1:1")


@pytest.mark.thorough
def test_status_lists_the_workers_with_their_tags(fleet: SmallFleet) -> None:
    command = ["fleet", "status", fleet.address]
    done = convkit(*command, "--json")
    workers = json.loads(done.stdout)
    assert [worker["name"] for worker in workers] == ["w0", "w1"]
    assert all(worker["tags"]["MEM"] > 0 and worker["threads"] == 2 for worker in workers)
    assert "workers: 2, stages at once: 4" in convkit(*command).stdout
