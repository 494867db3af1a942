"""Settles stages by sending them to a fleet; all else works as on a single machine."""

import dataclasses
import functools
import json
import time
from collections.abc import Callable, Mapping

from convkit.host.facts.observed_files import opened_in, remember_files
from convkit.host.fleet.dask_cluster import Cluster, NoWorkerLeft
from convkit.host.fleet.recipe_bundle import bundle_of
from convkit.host.fleet.remote_stage import run_stage
from convkit.host.fleet.stage_orders import Answered, StageOrder
from convkit.host.fleet.worker_tags import Fit, find_fit, needs_of, resources_for
from convkit.host.plan.stage_keys import ingredients, possible_keys
from convkit.host.plan.stages import Stage
from convkit.host.record.run_record import StageReport
from convkit.host.stages.stage_outcome import Settled, StageWork
from convkit.host.stages.stage_runner import StageRunner
from convkit.host.store.shared_store import SharedStore
from convkit.protocol.errors import FleetError, Interrupted
from convkit.protocol.findings.finding import Finding, Remedy
from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.json_codec import decode, encode

# How often a stage is resent because its worker was stopped, but not by this run.
_ATTEMPTS = 5


@dataclasses.dataclass(frozen=True)
class FleetSettler:
    """Settles each stage of a run on a suitable worker; `local` is the settler for this machine."""

    local: StageRunner
    cluster: Cluster
    shared: SharedStore
    files: str
    place: str
    topic: str

    @classmethod
    def of(cls, local: StageRunner, cluster: Cluster, url: str, topic: str) -> "FleetSettler":
        """Push the recipe's files, and return a run's settler."""
        shared, bundle = SharedStore(url), bundle_of(local.loaded)
        files = shared.push_files(bundle.files, local.store.digests)
        return cls(local, cluster, shared, files, bundle.place, topic)

    def announce(self, stage: Stage, inputs: Mapping[str, str]) -> Callable[[], Settled]:
        """Return what settles a stage; the workers that run it announce it on their machines."""
        return functools.partial(self.settle, stage, inputs)

    def settle(self, stage: Stage, inputs: Mapping[str, str]) -> Settled:
        """Settle a stage whose inputs are known, like `StageRunner.settle`.

        Its key is computed from the facts of the workers it can run on: results can depend on the
        processor.
        """
        facts = self.local.surroundings.facts
        fit = find_fit(
            needs_of(stage, self.local.loaded.recipe),
            self.cluster.tags(),
            facts.platform,
            facts.processor,
        )
        if fit.processor is not None:
            facts = dataclasses.replace(facts, processor=fit.processor)
        parts = ingredients(stage, self.local.loaded.recipe, facts, inputs)
        assert parts is not None  # a run resolves every environment before it settles stages
        if not self.local.is_forced(stage):
            self.shared.adopt_first(possible_keys(parts), self.local.store)
        surroundings = dataclasses.replace(self.local.surroundings, facts=facts)
        runner = dataclasses.replace(
            self.local, surroundings=surroundings, elsewhere=_OnFleet(self, fit)
        )
        return runner.settle(stage, inputs)


@dataclasses.dataclass(frozen=True)
class _OnFleet:
    """Has stages run by a worker of the fleet."""

    fleet: FleetSettler
    fit: Fit

    def lock_name(self, key: str) -> str:
        """Return a lock other than the stage's own, which a worker on this machine that shares this
        home would hold.
        """
        return f"fleet-{key}"

    def perform(self, runner: StageRunner, work: StageWork) -> Settled:
        """Send a stage to a suitable worker, and fetch its result."""
        stage = work.stage
        report = work.report()
        if self.fit.processor is None:
            return _no_worker(report, f"no worker of the fleet has {self.fit.lacking}")
        for artifact in work.inputs.values():
            self.fleet.shared.push(artifact, runner.store)
        try:
            answer = self._ask(self._order(runner, work), runner, self.fit.processor)
        except NoWorkerLeft:
            needs = (
                " and ".join(needs_of(stage, runner.loaded.recipe))
                or "this run's platform and processor"
            )
            return _no_worker(report, f"the last worker of the fleet that has {needs} is gone")
        return self._take(report, answer, runner, work)

    def _order(self, runner: StageRunner, work: StageWork) -> StageOrder:
        return StageOrder(
            format=1,
            stage=work.stage,
            key=work.key,
            ingredients=dict(work.parts),
            inputs=dict(work.inputs),
            recipe=runner.loaded.text,
            place=self.fleet.place,
            files=self.fleet.files,
            toolchain=runner.surroundings.facts.toolchain,
            resolution=runner.surroundings.resolutions.get(work.stage.environment),
            store=self.fleet.shared.url,
            topic=self.fleet.topic,
            force=runner.is_forced(work.stage),
        )

    def _ask(self, order: StageOrder, runner: StageRunner, processor: str) -> Answered:
        needs = needs_of(order.stage, runner.loaded.recipe)
        resources = resources_for(needs, runner.surroundings.facts.platform, processor)
        text = json.dumps(encode(order))
        for _ in range(_ATTEMPTS):
            answered = self.fleet.cluster.perform(
                run_stage, text, order.stage.id, resources, runner.cancelled
            )
            answer = decode(Answered, json.loads(answered))
            if answer.error is not None:
                raise FleetError(answer.error)
            if not answer.interrupted:
                return answer
            if runner.cancelled.is_set():
                raise Interrupted("interrupted")
        raise FleetError(
            f"{order.stage.id}: {_ATTEMPTS} workers were stopped while they ran it; run again to"
            " continue"
        )

    def _take(
        self, report: StageReport, answer: Answered, runner: StageRunner, work: StageWork
    ) -> Settled:
        """Fetch a worker's result and return the settled stage; the first of two is kept."""
        assert answer.report is not None
        ended = dataclasses.replace(
            answer.report,
            id=report.id,
            target=report.target,
            version=report.version,
            reason=f"{report.reason} (on {answer.worker})",
        )
        if not answer.kept:
            if ended.artifact is None:
                return Settled(ended, answer.log)
            self.fleet.shared.pull(ended.artifact, runner.store)
            return Settled(ended, answer.log, decode(JOBS[ended.kind].result, answer.result))
        standing = self.fleet.shared.adopt(ended.key, runner.store)
        if standing is None:
            raise FleetError(
                f"{ended.id}: its record is gone from {self.fleet.shared.url}; run again to make it"
            )
        runner.store.set_latest(runner.loaded.recipe.name, ended.id, ended.key)
        facts, opened = runner.surroundings.facts, opened_in(standing.ingredients)
        remember_files(opened, work.stage, runner.loaded, facts, runner.home.store)
        known = work.known
        if known is not None and known.key != ended.key:
            known = None
        others = {answer.second, known.artifact if known else None} - {None, standing.artifact}
        if not JOBS[ended.kind].makes_model:
            others.clear()
        findings = (
            *standing.findings,
            *(_two_artifacts(ended.id, str(other), standing.artifact) for other in others),
        )
        ended = dataclasses.replace(ended, artifact=standing.artifact, findings=findings)
        return Settled(
            ended, runner.store.log(ended.key), decode(JOBS[ended.kind].result, standing.result)
        )


def _no_worker(report: StageReport, what: str) -> Settled:
    error = f"SKIPPED_NO_WORKER: {what}"
    remedy = Remedy(
        "Start such a worker with convkit fleet worker SCHEDULER. To list workers, run convkit"
        " fleet status."
    )
    finding = Finding("E101", error, evidence={"stage": report.id}, remedy=remedy)
    findings = (*report.findings, finding)
    return Settled(
        dataclasses.replace(
            report, status="skipped", error=error, ended=time.time(), findings=findings
        )
    )


def _two_artifacts(stage: str, other: str, standing: str) -> Finding:
    return Finding(
        "R101",
        f"{stage} produced two artifacts from the same inputs and tools: {standing[:12]}, which"
        f" came first and is kept, and {other[:12]}",
        evidence={"before": standing, "now": other},
    )
