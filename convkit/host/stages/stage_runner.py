"""Settles one stage: reuses it from the store, or runs a worker and stores the result."""

import dataclasses
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from convkit.host.facts.observed_files import facts_after, known_stage
from convkit.host.facts.planning_facts import ResolvedFacts
from convkit.host.home import Home
from convkit.host.plan.custom_operator_requests import custom_ops_of
from convkit.host.plan.stage_keys import (
    NEW,
    explain_change,
    ingredients,
    possible_keys,
    stage_key,
    without,
)
from convkit.host.plan.stage_requests import request_for
from convkit.host.plan.stages import Stage
from convkit.host.processes.expected_memory import expected_memory
from convkit.host.processes.machine_capacity import MACHINE, Machine, Tenant
from convkit.host.processes.progress_events import Listener, StageEnd
from convkit.host.processes.reproduction_variation import Variation
from convkit.host.processes.request_locations import Locations
from convkit.host.processes.worker_process import UTC, WorkerOutcome, findings_of, run_worker
from convkit.host.processes.worker_start import WORKERS, WorkerStrategy
from convkit.host.recipe.reading.loading import LoadedRecipe
from convkit.host.record.run_record import StageReport
from convkit.host.stages.crash_causes import cause_of_crash
from convkit.host.stages.earlier_cases import earlier_cases
from convkit.host.stages.runner_findings import (
    absent_device,
    addressed_report,
    simulated_instead,
    skipped_report,
    two_artifacts,
)
from convkit.host.stages.stage_lock import KeyLock
from convkit.host.stages.stage_outcome import Settled, StageWork, result_of
from convkit.host.store.file_intake import Intake
from convkit.host.store.store import StageRecord, Store
from convkit.host.toolchain.environments.environment_builds import ensure_environment
from convkit.host.toolchain.environments.host_environment import host_python
from convkit.host.toolchain.versions.version_findings import version_findings
from convkit.host.verdict.counted_explanations import EXPLANATIONS
from convkit.protocol.errors import Interrupted
from convkit.protocol.findings.finding import Finding
from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.json_codec import decode, encode
from convkit.protocol.messages import (
    PROTOCOL,
    Answer,
    CustomOps,
    EarlierCases,
    Envelope,
    ReferenceRequest,
    StageKind,
    StageRequest,
)
from convkit.protocol.runtimes.runtime_registry import package_folder, runtimes
from convkit.protocol.same_fields import taken_from


class RemoteStages(Protocol):
    """Runs stages on other machines."""

    def lock_name(self, key: str) -> str:
        """Return the lock that a run holds while a stage with this key runs elsewhere."""
        ...

    def perform(self, runner: "StageRunner", work: StageWork) -> Settled:
        """Have a stage run and return how it ended; its artifact is then in the runner's store."""
        ...


@dataclasses.dataclass(frozen=True)
class StageRunner:
    """Settles the stages of one run, with their shared state. `workers`: how their workers are
    started, if not as usual for the toolchain.
    """

    loaded: LoadedRecipe
    surroundings: ResolvedFacts
    home: Home
    store: Store
    listener: Listener
    cancelled: threading.Event
    force: bool = False
    absent: Mapping[str, str] = dataclasses.field(default_factory=dict)
    variation: Variation | None = None
    rerun: tuple[StageKind, ...] = ()
    elsewhere: RemoteStages | None = None
    machine: Machine = dataclasses.field(default_factory=lambda: MACHINE)
    workers: WorkerStrategy | None = None

    def settle(self, stage: Stage, inputs: Mapping[str, str]) -> Settled:
        """Settle a stage whose inputs (artifact digests by stage id) are known.

        Raises a ConvkitError if the stage cannot be attempted, Interrupted if the run is canceled.
        """
        return self.announce(stage, inputs)()

    def announce(self, stage: Stage, inputs: Mapping[str, str]) -> Callable[[], Settled]:
        """Return what settles a stage. Until then, it counts as running on this machine, unless it
        runs elsewhere or not at all.
        """
        parts = ingredients(stage, self.loaded.recipe, self.surroundings.facts, inputs)
        assert parts is not None  # a run resolves every environment before it settles stages
        key, tenant = stage_key(parts), Tenant()
        known = self.store.first_record(possible_keys(parts))
        if self.elsewhere is None and (self.is_forced(stage) or known is None):
            self.machine.announce(tenant)

        def settle() -> Settled:
            try:
                return self._settle(stage, inputs, key, parts, tenant)
            finally:
                self.machine.leave(tenant)

        return settle

    def _settle(
        self,
        stage: Stage,
        inputs: Mapping[str, str],
        key: str,
        parts: dict[str, str],
        tenant: Tenant,
    ) -> Settled:
        with self._only_one(key):
            key, parts, known = known_stage(
                stage, key, parts, inputs, self.loaded, self.surroundings.facts, self.store
            )
            if known is not None and not self.is_forced(stage):
                self.store.set_latest(self.loaded.recipe.name, stage.id, known.key)
                hit = self._hit(stage, known)
                self.listener.stage_finished(stage.id, _end(hit), 0.0)
                return self._annotated(stage, hit)
            reason = self._reason(stage, parts, inputs, forced=known is not None)
            self.listener.stage_started(stage.id, "" if reason == NEW else reason)
            work = StageWork(stage, key, reason, parts, inputs, known)
            settled = (
                self._run(work, tenant)
                if self.elsewhere is None
                else self.elsewhere.perform(self, work)
            )
        self.listener.stage_finished(stage.id, _end(settled), settled.report.seconds)
        return self._annotated(stage, settled)

    def _annotated(self, stage: Stage, settled: Settled) -> Settled:
        """Add findings about the tools' releases, and insert names into remedies."""
        resolution = self.surroundings.resolutions.get(stage.environment)
        if resolution is not None and (
            about_releases := version_findings(resolution, stage.environment)
        ):
            report = dataclasses.replace(
                settled.report, findings=(*settled.report.findings, *about_releases)
            )
            settled = dataclasses.replace(settled, report=report)
        report = addressed_report(settled.report, self.loaded.path)
        return dataclasses.replace(settled, report=report)

    def is_forced(self, stage: Stage) -> bool:
        """Return True if a stage must run regardless of the store."""
        return self.force or stage.kind in self.rerun

    def _only_one(self, key: str) -> KeyLock:
        name = key if self.elsewhere is None else self.elsewhere.lock_name(key)
        return KeyLock(self.home.store / "locks" / f"{name}.lock", self.cancelled)

    def _reason(
        self, stage: Stage, parts: Mapping[str, str], inputs: Mapping[str, str], *, forced: bool
    ) -> str:
        if forced:
            return "forced"
        before = self.store.latest(self.loaded.recipe.name, stage.id)
        return (
            NEW
            if before is None
            else explain_change(parts, inputs, before.ingredients, before.inputs)
        )

    def _hit(self, stage: Stage, record: StageRecord) -> Settled:
        report = taken_from(
            StageReport,
            stage,
            record,
            key=record.key,
            status="hit",
            reason="in the store",
            ended=record.started + record.seconds,
        )
        return Settled(
            report, self.store.log(record.key), decode(JOBS[stage.kind].result, record.result)
        )

    def _run(self, work: StageWork, tenant: Tenant) -> Settled:
        stage = work.stage
        report = work.report()
        missing = absent_device(stage)
        if missing is not None:
            return Settled(
                skipped_report(dataclasses.replace(report, ended=time.time()), stage, missing)
            )
        with self.store.staging() as folder:
            # Copies of built files become the run's models.
            intake = Intake(folder / "output", folder / "copies", lasting=stage.kind == "build")
            earlier = self._earlier(work)
            outcome = self._work(work, folder, tenant, intake, earlier)
            if outcome.ending == "cancelled":
                raise Interrupted("interrupted")
            report = dataclasses.replace(
                report, ended=time.time(), seconds=outcome.ended - outcome.started
            )
            answer = outcome.answer
            if answer is None or answer.outcome == "broken":
                return self._broken(work, report, outcome)
            report = dataclasses.replace(
                report,
                versions=answer.versions,
                peak_memory_bytes=answer.peak_memory_bytes,
                findings=answer.findings,
            )
            if answer.outcome == "skipped":
                return Settled(
                    skipped_report(report, stage, answer.error or "skipped"), outcome.log
                )
            artifact = self.store.take_in(folder / "output", intake)
            return self._done(work, report, answer, outcome, artifact, partly=earlier is not None)

    def _broken(self, work: StageWork, report: StageReport, outcome: WorkerOutcome) -> Settled:
        findings = tuple(findings_of(outcome, work.stage.kind, work.stage.target))
        if outcome.ending == "signalled":
            findings = (*self._cause_of_crash(work.stage, work.inputs), *findings)
        error = outcome.answer.error if outcome.answer else outcome.ending.replace("_", " ")
        return Settled(dataclasses.replace(report, findings=findings, error=error), outcome.log)

    def _done(
        self,
        work: StageWork,
        report: StageReport,
        answer: Answer,
        outcome: WorkerOutcome,
        artifact: str,
        *,
        partly: bool,
    ) -> Settled:
        """Record a stage whose output the store has. Failures get no record: they run again.
        `partly`: it did not need to run all of its cases, nor to read what they read.
        """
        stage, parts, known = work.stage, work.parts, work.known
        findings = list(report.findings)
        if (
            with_part_replaced := simulated_instead(stage, self.loaded.recipe, self.absent)
        ) is not None:
            findings.append(with_part_replaced)
        result = result_of(stage, answer)
        facts = facts_after(
            stage,
            answer,
            self.loaded,
            self.surroundings.facts,
            self.home,
            outcome.started,
            partly=partly,
        )
        if facts is not self.surroundings.facts:  # newly found files make it a different stage
            parts = ingredients(stage, self.loaded.recipe, facts, work.inputs) or parts
        parts = without(parts, answer.unread)
        report = dataclasses.replace(report, key=stage_key(parts))
        if known is not None and known.key != report.key:
            known = None
        makes_model = JOBS[stage.kind].makes_model
        if known is not None and makes_model and known.artifact != artifact:
            findings.append(two_artifacts(stage, known, artifact))
        report = dataclasses.replace(
            report, status="done", artifact=artifact, findings=tuple(findings)
        )
        if not any(finding.is_error for finding in findings):
            self._keep(report, parts, work.inputs, answer, outcome.log)
        return Settled(report, outcome.log, result)

    def _earlier(self, work: StageWork) -> EarlierCases | None:
        if self.is_forced(work.stage) or self.variation is not None:
            return None
        return earlier_cases(work, self.loaded.recipe.name, self.store)

    def _work(
        self,
        work: StageWork,
        folder: Path,
        tenant: Tenant,
        intake: Intake,
        earlier: EarlierCases | None,
    ) -> WorkerOutcome:
        stage, inputs = work.stage, work.inputs

        def progress(message: str, done: float | None = None) -> None:
            self.listener.stage_progress(stage.id, message, done)

        python = self._python(stage, progress)
        request = self._request(stage, inputs)
        if isinstance(request, ReferenceRequest):
            request = dataclasses.replace(request, earlier=earlier)
        output = folder / "output"
        output.mkdir()
        runtime = runtimes()[stage.runtime] if stage.runtime is not None else None
        outside = package_folder(runtime) if runtime is not None else None
        envelope = Envelope(
            PROTOCOL,
            stage.kind,
            str(output),
            encode(request),
            runtime=runtime.package if runtime is not None else None,
            runtime_folder=str(outside) if outside is not None else None,
            expected=self._expected(stage),
            custom_ops=self._custom_ops(exports=stage.kind == "export"),
        )
        needed = expected_memory(stage, request, inputs, self.loaded.recipe.name, self.store)
        threads = self.machine.admit(
            tenant, needed, self.cancelled, lambda: progress("waiting until memory is free")
        )
        varied = self.variation
        return run_worker(
            python,
            dataclasses.replace(envelope, threads=threads if varied is None else varied.threads),
            folder,
            workers=self.workers or WORKERS[self.surroundings.facts.toolchain],
            timeout_seconds=self.loaded.recipe.verify.timeout,
            on_event=progress,
            on_complete=intake.complete,
            cancelled=self.cancelled,
            hash_seed=varied.hash_seed if varied is not None else 0,
            timezone=varied.timezone if varied is not None else UTC,
        )

    def _cause_of_crash(self, stage: Stage, inputs: Mapping[str, str]) -> tuple[Finding, ...]:
        request = self._request(stage, inputs)
        python = self._python(stage, lambda _: None)  # it has just run there
        workers = self.workers or WORKERS[self.surroundings.facts.toolchain]
        seconds, cancelled = self.loaded.recipe.verify.timeout, self.cancelled
        return cause_of_crash(
            stage, request, self._custom_ops(), python, self.store, workers, seconds, cancelled
        )

    def _custom_ops(self, *, exports: bool = False) -> CustomOps:
        return custom_ops_of(self.loaded.recipe, self._locations({}), exports=exports)

    def _request(self, stage: Stage, inputs: Mapping[str, str]) -> StageRequest:
        views = {name: self.store.view(artifact) for name, artifact in inputs.items()}
        return request_for(stage, self.loaded.recipe, self._locations(views))

    def _locations(self, views: Mapping[str, Path]) -> Locations:
        return Locations(self.loaded, self.home, views, self.surroundings.facts.texts)

    def _python(self, stage: Stage, progress: Callable[[str], None]) -> Path:
        if self.surroundings.facts.toolchain == "host":
            return host_python()
        resolution = self.surroundings.resolutions[stage.environment]
        return ensure_environment(resolution, self.home.root, progress=progress).python

    def _expected(self, stage: Stage) -> dict[str, str]:
        resolution = self.surroundings.resolutions.get(stage.environment)
        return dict(resolution.packages) if resolution is not None else {}

    def _keep(
        self,
        report: StageReport,
        parts: Mapping[str, str],
        inputs: Mapping[str, str],
        answer: Answer,
        log: str,
    ) -> None:
        assert report.artifact is not None
        assert report.started is not None
        record = taken_from(
            StageRecord,
            report,
            ingredients=dict(parts),
            inputs=dict(inputs),
            result=answer.result,
            versions=answer.versions,
            peak_memory_bytes=answer.peak_memory_bytes,
        )
        self.store.put_record(record, log)
        self.store.set_latest(self.loaded.recipe.name, report.id, report.key)


def _end(settled: Settled) -> StageEnd:
    """Return how a stage ended: done, and with an error of its checks, is not done to a reader.

    What explains a difference is not a failed check: the verdict says whether the
    difference matters.
    """
    report = settled.report
    explanations = EXPLANATIONS if report.kind == "verify" else ()
    found = any(each.is_error and each.code not in explanations for each in report.findings)
    return "failed" if found and report.status in ("hit", "done") else report.status
