import functools
import threading
import time
from collections.abc import Callable, Mapping

import pytest

from convkit.host.plan.stages import Stage
from convkit.host.processes.progress_events import SilentListener
from convkit.host.record.run_record import StageReport
from convkit.host.stages import stage_executor
from convkit.host.stages.stage_executor import execute
from convkit.host.stages.stage_outcome import Settled
from convkit.host.toolchain.versions.stage_requirements import EnvironmentSpec
from convkit.protocol.errors import StoreError

SPEC = EnvironmentSpec("3.11", ())


def stage(name: str, *needs: str) -> Stage:
    return Stage(name, "build", SPEC, needs)


class Announcing:
    """Remembers the stages that were announced."""

    def __init__(self) -> None:
        self.announced: list[str] = []

    def announce(self, stage: Stage, inputs: Mapping[str, str]) -> Callable[[], Settled]:
        self.announced.append(stage.id)
        return functools.partial(self.settle, stage, inputs)

    def settle(self, stage: Stage, inputs: Mapping[str, str]) -> Settled:
        raise ZeroDivisionError


class Recorder(Announcing):
    """Settles stages in the threads it is called in, and remembers how many ran at once."""

    def __init__(
        self, seconds: float = 0.0, failing: tuple[str, ...] = (), together: int = 1
    ) -> None:
        super().__init__()
        self.order: list[str] = []
        self.announced_before: dict[str, list[str]] = {}
        self.inputs: dict[str, Mapping[str, str]] = {}
        self.most_at_once = 0
        self._seconds, self._failing = seconds, failing
        self._meeting = threading.Barrier(together)
        self._now = 0
        self._lock = threading.Lock()

    def settle(self, stage: Stage, inputs: Mapping[str, str]) -> Settled:
        with self._lock:
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            self.order.append(stage.id)
            self.inputs[stage.id] = inputs
            self.announced_before[stage.id] = list(self.announced)
        self._meeting.wait(60)  # for the others, however long they take to start
        time.sleep(self._seconds)
        with self._lock:
            self._now -= 1
        if stage.id in self._failing:
            raise StoreError("the disk is full")
        return Settled(
            StageReport(stage.id, stage.kind, "key", "done", "", artifact=f"artifact of {stage.id}")
        )


DIAMOND = (stage("a"), stage("b", "a"), stage("c", "a"), stage("d", "b", "c"))


def test_the_stages_left_are_told_as_they_become_fewer() -> None:
    told: list[set[str]] = []
    execute(
        DIAMOND,
        Recorder(),
        SilentListener(),
        threading.Event(),
        jobs=1,
        left=lambda stages: told.append({stage.id for stage in stages}),
    )
    names = [stage.id for stage in DIAMOND]
    assert [len(each) for each in told] == [*range(len(names))][::-1]
    assert told[0] == set(names) - {names[0]}


def test_a_stage_runs_after_what_it_needs_and_gets_its_artifacts() -> None:
    recorder = Recorder()
    settled = execute(DIAMOND, recorder, SilentListener(), threading.Event(), jobs=2)
    assert set(settled) == {"a", "b", "c", "d"}
    assert recorder.order[0] == "a"
    assert recorder.order[-1] == "d"
    assert recorder.inputs["d"] == {"b": "artifact of b", "c": "artifact of c"}


@pytest.mark.parametrize(("jobs", "most"), [(1, 1), (2, 2)])
def test_independent_stages_run_at_once_up_to_the_limit(jobs: int, most: int) -> None:
    recorder = Recorder(seconds=0.05, together=most)
    execute(
        tuple(stage(name) for name in "abcd"),
        recorder,
        SilentListener(),
        threading.Event(),
        jobs=jobs,
    )
    assert recorder.most_at_once == most


def test_stages_that_begin_together_are_announced_before_the_first_of_them_runs() -> None:
    recorder = Recorder()
    execute(DIAMOND, recorder, SilentListener(), threading.Event(), jobs=2)
    assert recorder.announced_before["a"] == ["a"]
    first = recorder.order[1]
    assert set(recorder.announced_before[first]) == {"a", "b", "c"}
    recorder = Recorder()
    execute((stage("a"), stage("b")), recorder, SilentListener(), threading.Event(), jobs=1)
    assert recorder.announced_before["a"] == ["a"], "there is no room for the other yet"


def test_the_stage_that_most_work_waits_for_begins() -> None:
    stages = (stage("short"), stage("first"), stage("then", "first"), stage("last", "then"))
    recorder = Recorder()
    execute(stages, recorder, SilentListener(), threading.Event(), jobs=1)
    assert recorder.order == ["first", "then", "short", "last"]
    recorder = Recorder()
    execute(
        stages, recorder, SilentListener(), threading.Event(), jobs=1, seconds={"short": 1000.0}
    )
    assert recorder.order == ["short", "first", "then", "last"]


def test_an_error_breaks_its_stage_and_blocks_what_needs_it_and_nothing_else() -> None:
    settled = execute(
        (*DIAMOND, stage("e")),
        Recorder(failing=("b",)),
        SilentListener(),
        threading.Event(),
        jobs=2,
    )
    statuses = {name: outcome.report.status for name, outcome in settled.items()}
    assert statuses == {"a": "done", "b": "broken", "c": "done", "d": "blocked", "e": "done"}
    assert settled["b"].report.findings[0].code == "E204"
    assert settled["d"].report.error == "b"


def test_blocking_goes_through_a_chain_to_its_origin() -> None:
    chain = (stage("a"), stage("b", "a"), stage("c", "b"))
    settled = execute(chain, Recorder(failing=("a",)), SilentListener(), threading.Event(), jobs=1)
    assert settled["c"].report.status == "blocked"
    assert settled["c"].report.error == "a"


def test_a_bug_in_a_stage_cancels_the_run_and_is_not_hidden() -> None:
    cancelled = threading.Event()
    with pytest.raises(ZeroDivisionError):
        execute((stage("a"),), Announcing(), SilentListener(), cancelled, jobs=1)
    assert cancelled.is_set()


def test_stages_that_never_started_are_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """`concurrent.futures.wait` takes a canceled future for unfinished until its pool notices."""
    monkeypatch.setattr(stage_executor, "_ENDING_SECONDS", 20.0)
    cancelled = threading.Event()

    class Buggy(Announcing):
        def settle(self, stage: Stage, inputs: Mapping[str, str]) -> Settled:
            if stage.id == "a":
                raise ZeroDivisionError
            cancelled.wait()  # as workers do, which then end
            raise StoreError("canceled")

    started = time.monotonic()
    with pytest.raises(ZeroDivisionError):
        execute(
            tuple(stage(name) for name in "abcdef"), Buggy(), SilentListener(), cancelled, jobs=1
        )
    assert time.monotonic() - started < 10
