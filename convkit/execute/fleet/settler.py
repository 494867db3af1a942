"""Settles stages by sending them to a fleet; what the executor and the store do stays as it is on
one machine.
"""

import dataclasses
import json
import time
from collections.abc import Mapping

from convkit.codec import decode, encode
from convkit.errors import FleetError, Interrupted
from convkit.execute.fleet.bundle import bundle_of
from convkit.execute.fleet.cluster import Cluster, NoWorkerLeft
from convkit.execute.fleet.orders import Answered, Order
from convkit.execute.fleet.remote import run_stage
from convkit.execute.fleet.tags import Fit, find_fit, needs_of, resources_for
from convkit.execute.opened_files import opened_in, remember_files
from convkit.execute.stage_runner import KeyLock, Settled, StageRunner
from convkit.findings.model import Finding, Remedy
from convkit.plan.stages import Stage, ingredients, stage_key
from convkit.record.model import StageReport
from convkit.store.shared import SharedStore
from convkit.store.store import StageRecord
from convkit.worker.jobs import JOBS

# How often a stage is sent again because its worker was told to stop, and not by this run.
_ATTEMPTS = 5
# Stages whose artifacts should be equal whenever they are made; those of the others hold seconds.
_EXACT = ("export", "precision", "build")


@dataclasses.dataclass(frozen=True)
class FleetSettler:
    """Settles each stage of a run on a worker that fits it; `local` is how this machine would
    settle it.
    """

    local: StageRunner
    cluster: Cluster
    shared: SharedStore
    files: str
    place: str
    topic: str

    @classmethod
    def of(cls, local: StageRunner, cluster: Cluster, url: str, topic: str) -> "FleetSettler":
        """Push the recipe's files, and return the settler of a run."""
        shared, bundle = SharedStore(url), bundle_of(local.loaded)
        files = shared.push_files(bundle.files, local.store.digests)
        return cls(local, cluster, shared, files, bundle.place, topic)

    def settle(self, stage: Stage, inputs: Mapping[str, str]) -> Settled:
        """Settle a stage whose inputs are known, as `StageRunner.settle`.

        Its key is made of the facts of the workers that it can go to: results can depend on the
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
        parts = ingredients(stage, self.local.loaded.recipe, facts)
        assert parts is not None  # a run resolves every environment before it settles stages
        key = stage_key(stage, parts, inputs)
        if not self.local.is_forced(stage) and self.local.store.record(key) is None:
            self.shared.adopt(key, self.local.store)
        surroundings = dataclasses.replace(self.local.surroundings, facts=facts)
        shared_with = {
            field.name: getattr(self.local, field.name) for field in dataclasses.fields(StageRunner)
        }
        runner = _FleetRunner(**{**shared_with, "surroundings": surroundings}, fleet=self, fit=fit)
        return runner.settle(stage, inputs)


@dataclasses.dataclass(frozen=True, kw_only=True)
class _FleetRunner(StageRunner):
    """A stage runner whose work is done by a worker of the fleet."""

    fleet: FleetSettler
    fit: Fit

    def _only_one(self, key: str) -> KeyLock:
        # Not the stage's own lock: a worker on this machine may share this home, and takes that
        # one.
        return super()._only_one(f"fleet-{key}")

    def _run(
        self,
        stage: Stage,
        key: str,
        reason: str,
        parts: Mapping[str, str],
        inputs: Mapping[str, str],
        known: StageRecord | None,
    ) -> Settled:
        report = StageReport(
            stage.id,
            stage.kind,
            key,
            "broken",
            reason,
            stage.target,
            stage.version,
            started=time.time(),
        )
        if self.fit.processor is None:
            return _no_worker(report, f"no worker of the fleet has {self.fit.lacking}")
        for artifact in inputs.values():
            self.fleet.shared.push(artifact, self.store)
        try:
            answer = self._ask(self._order(stage, key, parts, inputs), self.fit.processor)
        except NoWorkerLeft:
            needs = (
                " and ".join(needs_of(stage, self.loaded.recipe))
                or "this run's platform and processor"
            )
            return _no_worker(report, f"the last worker of the fleet that has {needs} is gone")
        return self._take(stage, report, answer, known)

    def _order(
        self, stage: Stage, key: str, parts: Mapping[str, str], inputs: Mapping[str, str]
    ) -> Order:
        return Order(
            format=1,
            stage=stage,
            key=key,
            ingredients=dict(parts),
            inputs=dict(inputs),
            recipe=self.loaded.text,
            place=self.fleet.place,
            files=self.fleet.files,
            toolchain=self.surroundings.facts.toolchain,
            resolution=self.surroundings.resolutions.get(stage.environment),
            store=self.fleet.shared.url,
            topic=self.fleet.topic,
            force=self.is_forced(stage),
        )

    def _ask(self, order: Order, processor: str) -> Answered:
        needs = needs_of(order.stage, self.loaded.recipe)
        resources = resources_for(needs, self.surroundings.facts.platform, processor)
        text = json.dumps(encode(order))
        for _ in range(_ATTEMPTS):
            told = self.fleet.cluster.perform(
                run_stage, text, order.stage.id, resources, self.cancelled
            )
            answer = decode(Answered, json.loads(told))
            if answer.error is not None:
                raise FleetError(answer.error)
            if not answer.interrupted:
                return answer
            if self.cancelled.is_set():
                raise Interrupted("interrupted")
        raise FleetError(
            f"{order.stage.id}: {_ATTEMPTS} workers were stopped while they ran it; run again to"
            " go on"
        )

    def _take(
        self, stage: Stage, report: StageReport, answer: Answered, known: StageRecord | None
    ) -> Settled:
        """Bring here what a worker left, and return how the stage ended; of two results the first
        one stands.
        """
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
            self.fleet.shared.pull(ended.artifact, self.store)
            return Settled(ended, answer.log, decode(JOBS[ended.kind].result, answer.result))
        standing = self.fleet.shared.adopt(ended.key, self.store)
        if standing is None:
            raise FleetError(
                f"{ended.id}: its record is gone from {self.fleet.shared.url}; run again to make it"
            )
        self.store.set_latest(self.loaded.recipe.name, ended.id, ended.key)
        facts = self.surroundings.facts
        opened = opened_in(standing.ingredients)
        remember_files(opened, stage, self.loaded, facts, self.home.store)
        others = {answer.second, known.artifact if known else None} - {None, standing.artifact}
        if ended.kind not in _EXACT:
            others.clear()
        findings = (
            *standing.findings,
            *(_two_artifacts(ended.id, str(other), standing.artifact) for other in others),
        )
        ended = dataclasses.replace(ended, artifact=standing.artifact, findings=findings)
        return Settled(
            ended, self.store.log(ended.key), decode(JOBS[ended.kind].result, standing.result)
        )


def _no_worker(report: StageReport, what: str) -> Settled:
    error = f"SKIPPED_NO_WORKER: {what}"
    remedy = Remedy(
        "Start such a worker: convkit fleet worker SCHEDULER; see what there is: convkit fleet"
        " status."
    )
    finding = Finding("E101", "warning", error, evidence={"stage": report.id}, remedy=remedy)
    findings = (*report.findings, finding)
    return Settled(
        dataclasses.replace(
            report, status="skipped", error=error, ended=time.time(), findings=findings
        )
    )


def _two_artifacts(stage: str, other: str, standing: str) -> Finding:
    return Finding(
        "R101",
        "warning",
        f"{stage} gave two artifacts from the same inputs and tools: {standing[:12]}, which came"
        f" first and stands, and {other[:12]}",
        evidence={"before": standing, "now": other},
    )
