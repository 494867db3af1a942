"""Forked workers are like fresh ones, and nothing passes from one to the next."""

import contextlib
import dataclasses
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import forked_models
import numpy as np
import pytest
from other_processes import alive, ended_with_the_test, gone_soon, soon
from stand_in_workers import time_out_after
from watched_workers import Watched, running_servers

from convkit.host.processes.fork_servers import ForkServers, forking
from convkit.host.processes.worker_process import WorkerOutcome, findings_of, run_worker
from convkit.host.processes.worker_start import (
    FreshProcesses,
    Launch,
    WorkerProcess,
    WorkerStrategy,
)
from convkit.protocol.contract import Contract
from convkit.protocol.jobs.preloading import preloaded_tools
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import PROTOCOL, Envelope, ReferenceRequest, Source
from convkit.worker.process.fork_server import disown_finalizers, reseed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere, every worker is fresh"),
]


def run(folder: Path, workers: WorkerStrategy, call: str, **options: Any) -> WorkerOutcome:
    """Run a factory of `forked_models` in a worker; it may write to `report` in the folder."""
    job = folder / str(len(list(folder.iterdir()))) / "job"
    (job / "output").mkdir(parents=True)
    source = Source(
        "factory", forked_models.__file__, call, overrides={"report": str(folder / "report")}
    )
    request = ReferenceRequest(source, Contract((), (), ()), {}, 0, (), None, ())
    envelope = Envelope(PROTOCOL, "reference", str(job / "output"), encode(request))
    given: dict[str, Any] = {"timeout_seconds": 120.0, "cancelled": threading.Event()}
    given |= {"on_event": lambda *_: None} | options
    return run_worker(Path(sys.executable), envelope, job, workers=workers, **given)


def report(folder: Path) -> Any:
    return json.loads((folder / "report").read_text())


def state(folder: Path, workers: WorkerStrategy, call: str, **options: Any) -> dict[str, Any]:
    """Return what a worker's factory has seen in its process."""
    outcome = run(folder, workers, call, **options)
    assert outcome.answer is not None, outcome.log
    assert "DoneError" in str(outcome.answer.error), outcome.answer
    return report(folder)


def await_report(folder: Path) -> Any:
    assert soon((folder / "report").exists, 120)
    return report(folder)


def test_nothing_of_a_stage_passes_to_the_next(tmp_path: Path, forked: Watched) -> None:
    fresh = state(tmp_path, FreshProcesses(), "probe")
    before = state(tmp_path, forked, "probe")
    poisoned = state(tmp_path, forked, "poison")
    after = state(tmp_path, forked, "probe")
    assert not forked.last_is_fresh
    assert [name for name in fresh if fresh[name] == poisoned[name]] == [], "poison without effect"
    assert len(fresh) > 35
    for name, expected in fresh.items():
        assert before[name] == expected, name
        assert after[name] == expected, name


@pytest.mark.thorough
def test_a_worker_gets_the_environment_the_mask_and_the_limits_of_its_moment(
    tmp_path: Path, forked: Watched
) -> None:
    before = state(tmp_path, forked, "probe")
    mask = os.umask(0o027)
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
        given = {**os.environ, "HF_POISON": "1"}
        after = state(tmp_path, forked, "probe", environment=given, hash_seed=7)
    finally:
        os.umask(mask)
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))
    changed = {"HF_POISON": "1", "PYTHONHASHSEED": "7"}
    assert after["environment"] == before["environment"] | changed
    assert (after["umask"], after["limits"][0]) == (0o027, 0)


def test_numpy_s_global_generator_is_seeded_anew() -> None:
    """convkit seeds it for a model; a tool may draw from it before."""
    before = np.random.get_state()  # noqa: NPY002
    try:
        draws = []
        for _ in range(2):
            np.random.seed(5)  # noqa: NPY002
            reseed()
            draws.append(np.random.random_sample())  # noqa: NPY002
    finally:
        np.random.set_state(before)  # noqa: NPY002
    assert draws[0] != draws[1]


def test_a_crash_is_that_of_one_worker(tmp_path: Path, forked: Watched) -> None:
    outcome = run(tmp_path, forked, "crash")
    assert (outcome.ending, outcome.signal, outcome.answer) == ("signalled", signal.SIGSEGV, None)
    assert "about to crash" in outcome.log
    assert "forked_models.py" in outcome.log  # faulthandler names the line
    state(tmp_path, forked, "probe")
    assert not forked.last_is_fresh


@pytest.mark.parametrize("call", ["fill", "fill_in_python"])
def test_a_worker_whose_memory_is_used_up_says_so(
    tmp_path: Path, forked: Watched, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """With as little memory left as chance has it, down to less than the worker needs to start."""
    chance, limit_of = random.Random(5), resource.getrlimit
    size = state(tmp_path, forked, "measure")
    for most in (0, 1 << 24, 1 << 28):
        limit = size + chance.randint(0, most)

        def little(number: int, limit: int = limit) -> tuple[int, int]:
            soft, hard = limit_of(number)
            return (limit if number == resource.RLIMIT_AS else soft), hard

        with monkeypatch.context() as patch:
            patch.setattr(resource, "getrlimit", little)
            outcome = run(tmp_path, forked, call)
        assert [each.code for each in findings_of(outcome, "reference", None)] == ["E202"], limit
    state(tmp_path, forked, "probe")
    assert not forked.last_is_fresh


def test_a_timeout_ends_the_worker_and_its_children(
    tmp_path: Path, forked: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = time_out_after(tmp_path / "report", monkeypatch)
    outcome = run(tmp_path, forked, "hang", timeout_seconds=limit)
    assert (outcome.ending, outcome.signal) == ("timed_out", signal.SIGTERM)
    worker, child, _ = report(tmp_path)
    assert gone_soon(worker)
    assert gone_soon(child)


def test_cancelling_ends_the_worker(tmp_path: Path, forked: Watched) -> None:
    cancelled = threading.Event()
    threading.Thread(target=lambda: (await_report(tmp_path), cancelled.set())).start()
    outcome = run(tmp_path, forked, "hang", cancelled=cancelled)
    assert (outcome.ending, outcome.answer) == ("cancelled", None)
    assert all(map(gone_soon, report(tmp_path)[:2]))


def test_two_workers_run_at_once(tmp_path: Path, forked: Watched) -> None:
    folders = [tmp_path / "a", tmp_path / "b"]
    cancelled = threading.Event()
    threads = []
    for folder in folders:
        folder.mkdir()
        options = {"cancelled": cancelled}
        threads.append(threading.Thread(target=run, args=(folder, forked, "hang"), kwargs=options))
        threads[-1].start()
    workers = [await_report(folder) for folder in folders]
    assert alive(workers[0][0])
    assert alive(workers[1][0])
    assert workers[0][2] == workers[1][2], "two servers"
    cancelled.set()
    for thread in threads:
        thread.join()


def test_events_arrive_and_input_is_empty(tmp_path: Path, forked: Watched) -> None:
    messages: list[str] = []
    outcome = run(
        tmp_path, forked, "speak", on_event=lambda message, _done: messages.append(message)
    )
    assert "to stdout" in outcome.log
    assert "to stderr" in outcome.log
    assert "read ''" in outcome.log
    assert messages, "a stage says what it does"


@pytest.mark.thorough
def test_without_its_server_a_worker_ends_and_the_next_one_gets_another(
    tmp_path: Path, forked: Watched
) -> None:
    ended: list[WorkerOutcome] = []
    thread = threading.Thread(target=lambda: ended.append(run(tmp_path, forked, "hang")))
    thread.start()
    worker, child, server = await_report(tmp_path)
    os.kill(server, signal.SIGKILL)
    thread.join()
    assert ended[0].answer is None
    assert gone_soon(worker)
    assert gone_soon(child)
    state(tmp_path, forked, "probe")
    state(tmp_path, forked, "probe")
    assert not forked.last_is_fresh


@pytest.mark.thorough
def test_the_end_of_the_process_that_asked_is_the_end_of_all(tmp_path: Path) -> None:
    parent = tmp_path / "parent.py"
    parent.write_text(
        f"""
import sys
from pathlib import Path
sys.path[:0] = {sys.path!r}
from convkit.host.processes.fork_servers import ForkServers
from test_fork_servers import run
run(Path({str(tmp_path)!r}), ForkServers(), "hang")
""",
        encoding="utf-8",
    )
    process = subprocess.Popen([sys.executable, str(parent)])
    with ended_with_the_test(process):
        pids = await_report(tmp_path)
        assert all(map(alive, pids))
        process.kill()
    assert all(map(gone_soon, pids))


@pytest.mark.thorough
def test_workers_with_bytecode_folders_of_their_own_share_a_server(tmp_path: Path) -> None:
    """Those of isolated environments have one each, for the Pythons that they start."""
    before = running_servers()

    class OwnFolder(ForkServers):
        def start(self, launch: Launch) -> WorkerProcess:
            own = {"PYTHONPYCACHEPREFIX": str(launch.folder / "bytecode")}
            return super().start(
                dataclasses.replace(launch, environment={**launch.environment, **own})
            )

    with contextlib.closing(OwnFolder()) as servers:
        workers = Watched(servers)
        seen = [state(tmp_path, workers, "probe")["environment"] for _ in range(2)]
        assert not workers.last_is_fresh
        assert len(running_servers() - before) == 1
    folders = [each["PYTHONPYCACHEPREFIX"] for each in seen]
    assert folders[0] != folders[1]
    assert all(Path(each).name == "bytecode" for each in folders)


@pytest.mark.thorough
def test_workers_with_numbers_of_threads_of_their_own_share_a_server(tmp_path: Path) -> None:
    """A server with several threads could not fork: BLAS libraries start theirs on import."""
    before = running_servers()
    others = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    all_threads = state(tmp_path, FreshProcesses(), "probe", environment=others)["torch threads"]
    with contextlib.closing(ForkServers()) as servers:
        workers = Watched(servers)
        for count, expected in (("3", 3), ("1", 1), (None, all_threads), ("2", 2)):
            given = others | ({"OMP_NUM_THREADS": count} if count else {})
            seen = state(tmp_path, workers, "probe", environment=given)
            assert not workers.last_is_fresh
            assert seen["environment"].get("OMP_NUM_THREADS") == count
            assert seen["torch threads"] == expected
        assert len(running_servers() - before) == 1


@pytest.mark.thorough
def test_closing_does_not_wait_for_imports(tmp_path: Path) -> None:
    before = running_servers()
    # An import that never ends: the server waits for a signal.
    servers = ForkServers(tools=lambda _: ("signal:pause",))
    workers = Watched(servers)
    thread = threading.Thread(target=state, args=(tmp_path, workers, "probe"))
    thread.start()
    while not (started := running_servers() - before):
        assert thread.is_alive()
        time.sleep(0.05)
    servers.close()
    assert all(map(gone_soon, started))
    thread.join()
    assert workers.last_is_fresh


@pytest.mark.thorough
def test_workers_do_not_wait_for_the_imports_of_other_servers(tmp_path: Path) -> None:
    endless = iter([("signal:pause",)])
    servers = ForkServers(tools=lambda envelope: next(endless, preloaded_tools(envelope)))
    before = running_servers()
    slow, quick = tmp_path / "slow", tmp_path / "quick"
    slow.mkdir()
    quick.mkdir()
    thread = threading.Thread(target=state, args=(slow, Watched(servers), "probe"))
    with contextlib.closing(servers):
        thread.start()
        while not (importing := running_servers() - before):
            assert thread.is_alive()
            time.sleep(0.05)
        workers = Watched(servers)
        state(quick, workers, "probe")
        assert not workers.last_is_fresh
        assert all(map(alive, importing))
    thread.join()


def test_other_strategies_start_workers_in_their_own_way() -> None:
    own = FreshProcesses(Path("stub.py"))
    with forking(own) as workers:
        assert workers is own


@pytest.mark.thorough
def test_closing_ends_the_servers(tmp_path: Path) -> None:
    before = running_servers()
    with contextlib.closing(ForkServers()) as servers:
        state(tmp_path, servers, "probe")
        (server,) = running_servers() - before
    assert gone_soon(server)


@pytest.mark.parametrize("tools", [("pyarrow",), ("no_such_module",)], ids=lambda each: each[0])
@pytest.mark.sampled(1)
def test_a_server_that_must_not_fork_leaves_it_to_fresh_processes(
    tmp_path: Path, tools: tuple[str, ...]
) -> None:
    """pyarrow starts a thread when it is imported: its locks could be held at a fork."""
    with contextlib.closing(ForkServers(tools=lambda _: tools)) as servers:
        workers = Watched(servers)
        for _ in range(2):
            state(tmp_path, workers, "probe")
            assert workers.last_is_fresh


@pytest.mark.thorough
def test_the_server_used_last_is_kept(tmp_path: Path) -> None:
    before = running_servers()
    with contextlib.closing(ForkServers(most=1)) as servers:
        workers = Watched(servers)
        kept = []
        for seed in (1, 2, 2):
            state(tmp_path, workers, "probe", hash_seed=seed)
            assert not workers.last_is_fresh
            kept.append(running_servers() - before)
    assert [len(each) for each in kept] == [1, 1, 1]
    assert kept[0] != kept[1] == kept[2]


def test_a_worker_leaves_the_server_s_finalizers_alone() -> None:
    """For instance of a temporary folder that a tool's import made for all workers."""
    ran: list[str] = []
    owner = dataclasses.make_dataclass("Owner", [])()
    inherited = weakref.finalize(owner, ran.append, "server's")
    others = {each: each.atexit for each in weakref.finalize._registry}
    try:
        disown_finalizers()
        assert not inherited.atexit
        assert weakref.finalize(owner, ran.append, "worker's").atexit
    finally:
        for each, atexit in others.items():
            each.atexit = atexit
