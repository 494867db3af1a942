"""A server that will fork no more workers frees its memory, and still looks after those it has."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from other_processes import alive, ended_with_the_test, gone_soon, soon
from test_fork_servers import await_report, run, state
from watched_workers import REAPER, Watched, running_servers

from convkit.host.processes.fork_servers import ForkServers, PlannedJob
from convkit.host.processes.worker_process import WorkerOutcome

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, every worker is fresh"),
]

_TORCH = frozenset({("torch",)})
_LAST = [PlannedJob("reference", _TORCH)]


def is_resting(pid: int) -> bool:
    with contextlib.suppress(psutil.Error):
        return REAPER in psutil.Process(pid).cmdline()
    return False


def hanging(folder: Path, workers: Watched, ended: list[WorkerOutcome]) -> threading.Thread:
    thread = threading.Thread(target=lambda: ended.append(run(folder, workers, "hang")))
    thread.start()
    return thread


@pytest.mark.thorough
def test_after_its_last_worker_a_server_frees_its_memory(tmp_path: Path) -> None:
    with contextlib.closing(ForkServers()) as servers:
        servers.expect(_LAST)
        workers, ended = Watched(servers), []
        thread = hanging(tmp_path, workers, ended)
        worker, child, server = await_report(tmp_path)
        assert soon(lambda: is_resting(server))
        assert soon(lambda: psutil.Process(server).memory_info().rss < 20e6)
        assert alive(worker), "its parent is still the same"
        time.sleep(1.0)
        assert alive(worker), "it has not missed its parent"
        os.kill(worker, 9)
        thread.join()
        assert ended[0].signal == 9, "its end is reported"
        assert gone_soon(child)
        (tmp_path / "report").unlink()
        state(tmp_path, workers, "probe")
        assert not workers.last_is_fresh, "the next worker has another server"
        assert len(running_servers() & {server}) == 1
    assert gone_soon(server)


def test_a_server_with_another_job_to_come_does_not_rest(tmp_path: Path) -> None:
    with contextlib.closing(ForkServers()) as servers:
        before = running_servers()
        servers.expect([*_LAST, PlannedJob("export", _TORCH), PlannedJob("reference", frozenset())])
        state(tmp_path, servers, "probe")
        (server,) = running_servers() - before
        time.sleep(0.3)
        assert not is_resting(server)
        # A stage whose result is known starts no worker.
        servers.keep([PlannedJob("reference", _TORCH)])
        state(tmp_path, servers, "probe")
        assert running_servers() - before == {server}
        assert soon(lambda: is_resting(server))


@pytest.mark.thorough
def test_closing_ends_the_workers_of_a_resting_server(tmp_path: Path) -> None:
    servers, ended = ForkServers(), []
    servers.expect(_LAST)
    thread = hanging(tmp_path, Watched(servers), ended)
    pids = await_report(tmp_path)
    assert soon(lambda: is_resting(pids[2]))
    servers.close()
    thread.join()
    assert all(map(gone_soon, pids))


@pytest.mark.thorough
def test_the_end_of_the_process_that_asked_ends_a_resting_server(tmp_path: Path) -> None:
    parent = tmp_path / "parent.py"
    parent.write_text(
        f"""
import sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from test_resting_servers import _LAST, ForkServers, run
servers = ForkServers()
servers.expect(_LAST)
run(Path({str(tmp_path)!r}), servers, "hang")
""",
        encoding="utf-8",
    )
    process = subprocess.Popen([sys.executable, str(parent)])
    with ended_with_the_test(process):
        pids = await_report(tmp_path)
        assert soon(lambda: is_resting(pids[2]))
        process.kill()
    assert all(map(gone_soon, pids))


@pytest.mark.thorough
def test_a_server_that_must_remove_a_folder_in_the_end_does_not_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As other code in its process, this would never run in a program of another kind."""
    module = tmp_path / "modules" / "with_a_folder.py"
    module.parent.mkdir()
    module.write_text("import tempfile\nfolder = tempfile.TemporaryDirectory()\n")
    monkeypatch.setattr(
        "convkit.host.processes.fork_servers._shared", lambda _: _environment(module)
    )
    tools = ("with_a_folder",)
    with contextlib.closing(ForkServers(tools=lambda _: tools)) as servers:
        before = running_servers()
        servers.expect([PlannedJob("reference", frozenset({tools}))])
        state(tmp_path, servers, "probe")
        (server,) = running_servers() - before
        time.sleep(0.3)
        assert not is_resting(server)
    assert gone_soon(server)


def _environment(module: Path) -> tuple[tuple[str, str], ...]:
    return (
        ("OMP_NUM_THREADS", "1"),
        ("PYTHONPATH", str(module.parent)),
        ("PATH", os.environ["PATH"]),
    )
