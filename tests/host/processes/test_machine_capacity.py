"""Stages that run at once share cores and memory; what they compute does not depend on it."""

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from small_runs import run, write_recipe

from convkit.host.processes.expected_memory import source_bytes
from convkit.host.processes.machine_capacity import Machine, Tenant, this_machine
from convkit.host.processes.worker_process import WorkerOutcome, run_worker
from convkit.host.stages import stage_runner
from convkit.protocol.control_group import memory_limit, processor_limit
from convkit.protocol.errors import Interrupted
from convkit.protocol.messages import Envelope, Source

GB = 10**9


@pytest.fixture(autouse=True)
def _no_number_of_threads_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS")


@contextlib.contextmanager
def announced(machine: Machine) -> Iterator[Tenant]:
    tenant = Tenant()
    machine.announce(tenant)
    yield tenant
    machine.leave(tenant)


def admitted(machine: Machine, tenant: Tenant, memory: int = GB) -> int | None:
    return machine.admit(tenant, memory, threading.Event(), lambda: None)


def test_a_lone_stage_gets_all_cores_and_two_get_half_each() -> None:
    machine = Machine(8, 10 * GB)
    with announced(machine) as one:
        assert admitted(machine, one) == 8
    with announced(machine) as one, announced(machine) as two:
        assert (admitted(machine, one), admitted(machine, two)) == (4, 4)


def test_a_stage_that_was_not_announced_counts_once_it_is_admitted() -> None:
    machine, unexpected = Machine(8, 10 * GB), Tenant()
    assert admitted(machine, unexpected) == 8
    with announced(machine) as other:
        assert admitted(machine, other) == 4
        machine.leave(unexpected)
        assert admitted(machine, other) == 8


def test_a_stage_gets_a_thread_if_there_are_more_stages_than_cores() -> None:
    machine = Machine(2, 10 * GB)
    with announced(machine) as one, announced(machine), announced(machine):
        assert admitted(machine, one) == 1


def test_a_stage_that_waits_for_memory_takes_no_cores_from_the_one_that_runs() -> None:
    machine = Machine(8, 10 * GB)
    with announced(machine) as large, announced(machine) as other:
        other.memory = 6 * GB
        assert admitted(machine, large, 6 * GB) == 8


def test_the_user_s_number_of_threads_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    machine = Machine(8, 10 * GB)
    with announced(machine) as one:
        assert admitted(machine, one) is None


def test_stages_that_do_not_fit_together_run_one_after_another() -> None:
    machine = Machine(4, 10 * GB)
    waits, started = threading.Event(), threading.Event()

    def second() -> None:
        with announced(machine) as tenant:
            machine.admit(tenant, 6 * GB, threading.Event(), waits.set)
            started.set()

    with announced(machine) as first:
        admitted(machine, first, 5 * GB)
        thread = threading.Thread(target=second)
        thread.start()
        assert waits.wait(30)
        assert not started.is_set()
    assert started.wait(30)
    thread.join()


def test_a_stage_larger_than_the_machine_runs_alone() -> None:
    machine = Machine(4, GB)
    with announced(machine) as tenant:
        assert admitted(machine, tenant, 50 * GB) == 4


def test_a_canceled_run_does_not_wait_for_memory() -> None:
    machine, cancelled = Machine(4, GB), threading.Event()
    cancelled.set()
    with announced(machine) as first, announced(machine) as second:
        admitted(machine, first, GB)
        with pytest.raises(Interrupted):
            machine.admit(second, GB, cancelled, lambda: None)
    with announced(machine) as third:  # neither is remembered
        assert admitted(machine, third, GB) == 4


@contextlib.contextmanager
def recorded(
    monkeypatch: pytest.MonkeyPatch, machine: Machine, *, together: tuple[str, ...] = ()
) -> Iterator[dict[str, int | None]]:
    """Run stages on a machine; yield the threads of each kind of stage. The workers of the kinds in
    `together` wait for one another.
    """
    meeting = threading.Barrier(max(1, len(together)))
    threads: dict[str, int | None] = {}

    def watched(
        python: Path, envelope: Envelope, *rest: object, **options: object
    ) -> WorkerOutcome:
        threads[envelope.job] = envelope.threads
        if envelope.job in together:
            meeting.wait(300)
        return run_worker(python, envelope, *rest, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(stage_runner, "run_worker", watched)
        patch.setattr(stage_runner, "MACHINE", machine)
        yield threads


def test_stages_that_begin_together_share_the_cores_and_those_in_the_store_take_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, home = write_recipe(tmp_path), tmp_path / "home"
    machine, both = Machine(4, 100 * GB), ("export", "reference")
    with recorded(monkeypatch, machine, together=both) as threads:
        run(recipe, home, jobs=2)
    assert (threads["export"], threads["reference"]) == (2, 2)
    with recorded(monkeypatch, machine) as threads:
        run(recipe, home, jobs=2, rerun=("export",))
    assert threads == {"export": 4}


@pytest.mark.thorough
def test_threads_are_in_no_key_and_change_no_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, home = write_recipe(tmp_path), tmp_path / "home"
    with recorded(monkeypatch, Machine(4, 100 * GB)) as threads:
        first = run(recipe, home, jobs=1)
    assert threads == dict.fromkeys(("export", "reference", "build", "verify"), 4)
    with recorded(monkeypatch, Machine(1, 100 * GB)) as threads:
        assert run(recipe, home, jobs=1).up_to_date
        assert threads == {}
        again = run(recipe, home, jobs=1, force=True)
    assert threads["export"] == threads["build"] == 1
    assert not [finding for finding in again.record.findings if finding.is_error]
    stages = [
        {stage.id: (stage.key, stage.artifact) for stage in outcome.record.stages}
        for outcome in (first, again)
    ]
    assert {name: key for name, (key, _) in stages[0].items()} == {
        name: key for name, (key, _) in stages[1].items()
    }
    for name in ("export", "reference", "build:ort"):
        assert stages[0][name] == stages[1][name]


def test_weights_are_counted_and_other_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "model-00001.safetensors").write_bytes(b"0" * 1000)
    (tmp_path / "model-00002.safetensors").write_bytes(b"0" * 500)
    (tmp_path / "tokenizer.json").write_bytes(b"0" * 9000)
    assert source_bytes(Source("path", str(tmp_path))) == 1500
    (tmp_path / "model.onnx").write_bytes(b"0" * 10)
    (tmp_path / "model.onnx.data").write_bytes(b"0" * 20)
    assert source_bytes(Source("onnx", str(tmp_path / "model.onnx"))) == 1530
    assert source_bytes(Source("config", identifier="bert")) == 0
    assert source_bytes(Source("path", str(tmp_path / "absent"))) == 0


def group(root: Path, *files: tuple[str, str]) -> Path:
    """Write a control group's files; return the file that names the group."""
    for name, content in files:
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(content)
    membership = root / "cgroup"
    membership.write_text("0::/pod/one\n")
    return membership


def test_the_strictest_group_around_us_limits_memory_and_cores(tmp_path: Path) -> None:
    membership = group(
        tmp_path,
        ("pod/memory.max", "2000\n"),
        ("pod/one/memory.max", "max\n"),
        ("pod/cpu.max", "400000 100000\n"),
        ("pod/one/cpu.max", "150000 100000\n"),
    )
    assert memory_limit(membership, tmp_path) == 2000
    assert processor_limit(membership, tmp_path) == 2


def test_limits_of_version_1_are_read(tmp_path: Path) -> None:
    membership = group(
        tmp_path,
        ("memory/x/memory.limit_in_bytes", "3000\n"),
        ("cpu/x/cpu.cfs_quota_us", "50000\n"),
        ("cpu/x/cpu.cfs_period_us", "100000\n"),
    )
    membership.write_text("3:memory:/x\n2:cpu,cpuacct:/x\n")
    assert memory_limit(membership, tmp_path) == 3000
    assert processor_limit(membership, tmp_path) == 1
    assert processor_limit(tmp_path / "absent", tmp_path) is None


def test_without_limits_everything_is_ours(tmp_path: Path) -> None:
    membership = group(tmp_path, ("pod/one/cpu.max", "max 100000\n"))
    assert memory_limit(membership, tmp_path) is None
    assert processor_limit(membership, tmp_path) is None
    machine = this_machine()
    with announced(machine) as tenant:
        assert (admitted(machine, tenant, 1) or 0) >= 1
