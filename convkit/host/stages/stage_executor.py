"""Runs the stages of a plan concurrently, each as soon as its inputs are ready."""

import concurrent.futures
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from convkit.host.plan.stage_order import seconds_to_end
from convkit.host.plan.stages import Stage
from convkit.host.processes.progress_events import Listener
from convkit.host.record.run_record import StageReport
from convkit.host.stages.stage_outcome import Settled
from convkit.protocol.errors import ConvkitError, Interrupted
from convkit.protocol.findings.finding import Finding, Remedy

# How long an interrupted run waits for its workers: Ctrl-C must end it within two seconds.
_ENDING_SECONDS = 1.5


class Settler(Protocol):
    """Runs or reuses stages, given the artifacts they read by stage id."""

    def announce(self, stage: Stage, inputs: Mapping[str, str]) -> Callable[[], Settled]:
        """Announce a stage that is about to begin, and return what settles it in its own thread."""


def execute(
    stages: tuple[Stage, ...],
    settler: Settler,
    listener: Listener,
    cancelled: threading.Event,
    *,
    jobs: int,
    seconds: Mapping[str, float] | None = None,
    left: Callable[[Collection[Stage]], None] = lambda _: None,
) -> dict[str, Settled]:
    """Run or reuse all stages, up to `jobs` at once; return them by id.

    Of the stages that are ready, the one with the longest chain of stages behind it begins first;
    `seconds` are the times of earlier runs, by id. `left` receives the unsettled stages whenever
    some have been settled. A stage whose inputs are not usable is blocked. A ConvkitError in one
    stage breaks only that stage. Ctrl-C sets `cancelled`, waits a moment for the workers to end and
    raises Interrupted.
    """
    settled: dict[str, Settled] = {}
    urgency = seconds_to_end(stages, seconds or {})
    by_urgency = sorted(stages, key=lambda stage: -urgency[stage.id])
    waiting = {stage.id: stage for stage in by_urgency}
    running: dict[concurrent.futures.Future[Settled], Stage] = {}
    for stage in stages:
        listener.stage_waiting(stage.id)
    pool = concurrent.futures.ThreadPoolExecutor(jobs, thread_name_prefix="stage")
    try:
        while waiting or running:
            _block(waiting, settled, listener)
            beginning = _ready(waiting, settled)[: jobs - len(running)]
            # All are announced before the first of them begins, so that each knows of the others.
            announced = [settler.announce(stage, _inputs(stage, settled)) for stage in beginning]
            for stage, settle in zip(beginning, announced, strict=True):
                del waiting[stage.id]
                running[pool.submit(settle)] = stage
            # A finite timeout, so that Ctrl-C is noticed at once.
            finished, _ = concurrent.futures.wait(
                running, timeout=0.2, return_when="FIRST_COMPLETED"
            )
            for future in finished:
                stage = running.pop(future)
                settled[stage.id] = _outcome(stage, future, listener)
            if finished:
                left((*waiting.values(), *running.values()))
    except BaseException:  # Ctrl-C, or a bug: either way no worker may outlive this
        cancelled.set()
        _abandon(pool, running)
        raise
    pool.shutdown()
    return settled


def _abandon(
    pool: concurrent.futures.Executor, running: Collection[concurrent.futures.Future[Settled]]
) -> None:
    """Give canceled work a moment to end. Work that ignores it, such as copying a large file, is
    not waited for.
    """
    pool.shutdown(wait=False, cancel_futures=True)
    started = [future for future in running if not future.cancelled()]
    concurrent.futures.wait(started, timeout=_ENDING_SECONDS)


def _ready(waiting: Mapping[str, Stage], settled: Mapping[str, Settled]) -> list[Stage]:
    """Return the stages whose inputs are settled, in the order of `waiting`."""
    return [stage for stage in waiting.values() if all(name in settled for name in stage.needs)]


def _inputs(stage: Stage, settled: Mapping[str, Settled]) -> dict[str, str]:
    """Return the artifacts that a stage reads, by stage id."""
    return {name: settled[name].report.artifact or "" for name in stage.needs}


def _block(waiting: dict[str, Stage], settled: dict[str, Settled], listener: Listener) -> None:
    """Settle the stages whose inputs are not usable: blocking one can block the next."""
    moved = True
    while moved:
        moved = False
        for stage in _ready(waiting, settled):
            missing = next((name for name in stage.needs if not settled[name].usable), None)
            if missing is not None:
                del waiting[stage.id]
                settled[stage.id] = blocked(stage, settled[missing])
                listener.stage_finished(stage.id, "blocked", 0.0)
                moved = True


def blocked(stage: Stage, cause: Settled) -> Settled:
    """Return a stage that could not run because an earlier one did not finish."""
    origin, reason = cause.report.id, f"{cause.report.id} did not finish"
    if cause.report.status == "blocked":
        origin, reason = cause.report.error or origin, cause.report.reason
    elif found := [finding.code for finding in cause.report.findings if finding.is_error]:
        reason = f"{origin} found {', '.join(dict.fromkeys(found))}"
    report = StageReport(
        stage.id, stage.kind, "", "blocked", reason, stage.target, stage.version, error=origin
    )
    return Settled(report)


def _outcome(
    stage: Stage, future: "concurrent.futures.Future[Settled]", listener: Listener
) -> Settled:
    try:
        return future.result()
    except Interrupted as error:
        raise KeyboardInterrupt from error
    except ConvkitError as error:
        finding = Finding(
            "E204",
            str(error),
            evidence={"stage": stage.id},
            remedy=Remedy("See the message above.", refers=True),
        )
        report = StageReport(
            stage.id,
            stage.kind,
            "",
            "broken",
            "",
            stage.target,
            stage.version,
            findings=(finding,),
            error=str(error),
        )
        listener.stage_finished(stage.id, "broken", 0.0)
        return Settled(report, str(error))
