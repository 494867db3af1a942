"""Processes that leave their worker's session end with its stage."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from other_processes import alive, ended_with_the_test, gone_soon
from stand_in_workers import Run, stand_in_worker, time_out_after
from test_fork_servers import run
from watched_workers import Watched

from convkit.host.processes.fork_servers import ForkServers
from convkit.host.processes.worker_start import FreshProcesses, WorkerStrategy
from convkit.protocol import process_trees

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="no other system shows ancestry")


@pytest.fixture(params=["fresh", "forked"])
def workers(request: pytest.FixtureRequest) -> Iterator[WorkerStrategy]:
    if request.param == "fresh":
        yield FreshProcesses()
        return
    with contextlib.closing(ForkServers()) as servers:
        yield servers


def left_by(folder: Path) -> int:
    return int((folder / "report.left").read_text())


@pytest.mark.slow
def test_a_daemon_ends_with_a_stage_that_ends(tmp_path: Path, workers: WorkerStrategy) -> None:
    """It has forked twice, leads a session and has an empty environment."""
    outcome = run(tmp_path, workers, "leave_and_end")
    assert outcome.ending == "answered"
    assert gone_soon(left_by(tmp_path))


@pytest.mark.slow
def test_a_daemon_ends_with_a_stage_that_times_out(
    tmp_path: Path, workers: WorkerStrategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = time_out_after(tmp_path / "report", monkeypatch)
    outcome = run(tmp_path, workers, "leave_and_hang", timeout_seconds=limit)
    assert outcome.ending == "timed_out"
    assert gone_soon(left_by(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("resting", [False, True])
@pytest.mark.sampled(1)
def test_a_daemon_ends_with_a_stage_that_is_killed(tmp_path: Path, resting: bool) -> None:
    """Its ancestor is gone: the server has adopted it."""
    with contextlib.closing(ForkServers()) as servers:
        if resting:
            servers.expect([])
        workers = Watched(servers)
        outcome = run(tmp_path, workers, "leave_and_crash")
        assert not workers.last_is_fresh
        assert outcome.signal == signal.SIGKILL
        assert gone_soon(left_by(tmp_path))


@pytest.mark.slow
@pytest.mark.thorough
def test_a_stage_that_ends_leaves_another_stage_s_daemon_alone(tmp_path: Path) -> None:
    with contextlib.closing(ForkServers()) as servers:
        cancelled = threading.Event()
        (tmp_path / "a").mkdir()
        (tmp_path / "b").mkdir()
        other = threading.Thread(
            target=run,
            args=(tmp_path / "a", servers, "leave_and_hang"),
            kwargs={"cancelled": cancelled},
        )
        other.start()
        while not (tmp_path / "a" / "report").exists():
            pass
        run(tmp_path / "b", servers, "leave_and_end")
        assert gone_soon(left_by(tmp_path / "b"))
        assert alive(left_by(tmp_path / "a"))
        cancelled.set()
        other.join()
        assert gone_soon(left_by(tmp_path / "a"))


SETSID = """
child = subprocess.Popen(
    [sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True
)
Path("pid").write_text(str(child.pid))
"""


@pytest.mark.parametrize("end", ["answer()", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_session_is_found_by_its_environment_with_a_stand_in_worker(
    tmp_path: Path, end: str
) -> None:
    stand_in: Run = stand_in_worker(tmp_path)
    stand_in(SETSID + end)
    assert gone_soon(int((tmp_path / "job" / "pid").read_text()))


def test_other_processes_stay() -> None:
    """Also one whose environment names another stage, or whose id has passed to another process."""
    # It has a child, which ends with it; that it prints says that its environment can be read.
    child = "subprocess.Popen([sys.executable, '-c', 'input()'], stdin=-1, stderr=-3)"
    program = f"import subprocess, sys; print(({child}).pid, flush=True); sys.stdin.read()"
    variables = {**os.environ, process_trees.STAGE_VARIABLE: "another"}
    bystander = subprocess.Popen(
        [sys.executable, "-c", program],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with ended_with_the_test(bystander):
        assert bystander.stdout is not None
        below = int(bystander.stdout.readline())
        process_trees.end_all(lambda: process_trees.started_by("one"))
        process_trees.LiveProcess(bystander.pid, started=0).send(signal.SIGKILL)
        # This process may have other children, of other tests.
        assert {each.pid for each in process_trees.descendants(bystander.pid)} == {below}
        assert process_trees.descendants(bystander.pid, beside=[below]) == set()
        mine = process_trees.descendants(os.getpid(), beside=[bystander.pid])
        assert {bystander.pid, below}.isdisjoint(each.pid for each in mine)
        assert alive(bystander.pid)
        process_trees.end_all(lambda: process_trees.started_by("another"))
        assert bystander.wait(60) == -signal.SIGKILL
