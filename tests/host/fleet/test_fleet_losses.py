"""A real Dask cluster that loses workers, with stubs for stages."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from fleet_runs import settle, write_recipe
from other_processes import alive, ended_with_the_test, soon
from small_fleet import SmallFleet, stub_processes, stub_targets, write_stub

from convkit.host.fleet import dask_cluster
from convkit.host.fleet.fleet_worker import fleet_status
from convkit.host.stages.stage_outcome import Settled
from convkit.host.store.shared_store import SharedStore
from convkit.host.store.store import Store

pytestmark = [
    pytest.mark.slow,
    # Dask's client leaves its sockets to the collector when the other end was killed.
    pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning"),
]


@pytest.fixture
def stubs(tmp_path: Path) -> Path:
    return write_stub(tmp_path / "stub")


@pytest.mark.thorough
def test_two_hundred_stages_survive_two_killed_workers(stubs: Path, tmp_path: Path) -> None:
    recipe, home = write_recipe(tmp_path, targets=stub_targets(66)), tmp_path / "home"
    with SmallFleet(tmp_path / "fleet", 4, preload=stubs) as fleet:

        def kill() -> None:
            for worker, after in ((fleet.workers[0], 40), (fleet.workers[2], 100)):
                assert soon(lambda after=after: len(stub_processes(stubs)) > after, 120)
                assert soon(lambda worker=worker: kill_at_work(worker), 60)

        killer = threading.Thread(target=kill)
        killer.start()
        settled = settle(recipe, home, fleet, threading.Event())
        killer.join()
        assert [worker.poll() for worker in fleet.workers] == [-9, None, -9, None]
    assert len(settled) == 200
    # A hit: a worker was killed when its record stood already, and before its answer was fetched.
    assert {each.report.status for each in settled.values()} <= {"done", "hit"}
    assert len(stub_processes(stubs)) >= 202, "what ran on a killed worker ran again"
    _check_one_result_for_each_key(
        settled, Store(home / "store"), SharedStore((tmp_path / "fleet" / "shared").as_uri())
    )


def kill_at_work(worker: subprocess.Popen[bytes]) -> bool:
    """Kill a worker if it runs a stage now; say whether."""
    worker.send_signal(signal.SIGSTOP)
    running = [
        each
        for each in psutil.Process(worker.pid).children()
        if each.status() != psutil.STATUS_ZOMBIE
    ]
    worker.send_signal(signal.SIGKILL if running else signal.SIGCONT)
    return bool(running)


def _check_one_result_for_each_key(
    settled: dict[str, Settled], store: Store, shared: SharedStore
) -> None:
    assert len({each.report.key for each in settled.values()}) == len(settled)
    for each in settled.values():
        here, there = store.record(each.report.key), shared.record(each.report.key)
        assert here is not None
        assert there is not None
        assert here == there.record
        assert here.artifact == each.report.artifact
        assert here.inputs == {name: settled[name].report.artifact for name in here.inputs}


def test_a_stage_that_kills_every_worker_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "_GONE_SECONDS", 3.0)
    recipe = write_recipe(tmp_path)
    preload = write_stub(tmp_path / "stub", kills_its_worker=True)
    allowed = {"DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0"}
    with SmallFleet(tmp_path / "fleet", 2, preload=preload, **allowed) as fleet:
        settled = settle(recipe, tmp_path / "home", fleet, threading.Event())
    assert settled["export"].report.status == "broken"
    assert "every worker that ran it was lost" in str(settled["export"].report.error)


@pytest.mark.thorough
def test_when_the_last_worker_goes_its_stages_are_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dask_cluster, "_GONE_SECONDS", 1.0)
    recipe = write_recipe(tmp_path)
    preload = write_stub(tmp_path / "stub", seconds=60)
    with SmallFleet(tmp_path / "fleet", 1, preload=preload) as fleet:

        def kill() -> None:
            assert soon(lambda: len(stub_processes(preload)) == 2, 60)
            fleet.workers[0].send_signal(signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        settled = settle(recipe, tmp_path / "home", fleet, threading.Event())
        killer.join()
    assert settled["export"].report.status == "skipped"
    assert "SKIPPED_NO_WORKER: the last worker" in str(settled["export"].report.error)
    for pid in stub_processes(preload):
        os.kill(
            pid, signal.SIGKILL
        )  # a stub does not look after its parent, as the real worker does


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SmallFleet, Path]]:
    """Return a fleet whose stages wait for ten minutes, and its stub."""
    folder = tmp_path_factory.mktemp("waiting")
    preload = write_stub(folder / "stub", seconds=600)
    with SmallFleet(folder / "fleet", 2, preload=preload) as started:
        yield started, preload


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL], ids=["ctrl-c", "killed"])
@pytest.mark.sampled(1)
def test_a_run_that_ends_stops_what_its_workers_run(
    waiting: tuple[SmallFleet, Path], tmp_path: Path, number: signal.Signals
) -> None:
    fleet, preload = waiting
    before = set(stub_processes(preload))
    recipe = write_recipe(tmp_path)
    command = [
        sys.executable,
        "-m",
        "convkit.cli.main",
        "run",
        str(recipe),
        "--scheduler",
        fleet.address,
    ]
    command += ["--toolchain", "host", "--no-track", "--home", str(tmp_path / "home")]
    started = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # Tests that run in a shell's background ignore Ctrl-C, and so would their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )
    with ended_with_the_test(started):
        assert soon(lambda: len(set(stub_processes(preload)) - before) == 2, 60)
        pids = set(stub_processes(preload)) - before
        assert all(alive(pid) for pid in pids)
        started.send_signal(number)
        output, _ = started.communicate(timeout=120)
    assert started.returncode == (130 if number == signal.SIGINT else -9), output
    assert soon(lambda: not any(alive(pid) for pid in pids))
    assert all(worker.poll() is None for worker in fleet.workers)
    workers = fleet_status(fleet.address)
    assert soon(lambda: all(worker.running == 0 for worker in fleet_status(fleet.address))), workers


@pytest.mark.thorough
def test_a_worker_that_is_told_to_stop_hands_its_stages_on(stubs: Path, tmp_path: Path) -> None:
    write_stub(stubs.parent, seconds=3)
    recipe = write_recipe(tmp_path)
    with SmallFleet(tmp_path / "fleet", 2, preload=stubs) as fleet:

        def stop() -> None:
            assert soon(lambda: len(stub_processes(stubs)) == 2, 60)
            fleet.workers[0].send_signal(signal.SIGTERM)

        stopper = threading.Thread(target=stop)
        stopper.start()
        settled = settle(recipe, tmp_path / "home", fleet, threading.Event())
        stopper.join()
        assert fleet.workers[0].wait(60) == 0
    assert {each.report.status for each in settled.values()} == {"done"}
