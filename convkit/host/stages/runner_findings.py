"""The findings that a stage's runner adds or completes: what its worker could not know."""

import dataclasses
import os
import shlex
from collections.abc import Mapping
from pathlib import Path

from convkit.host.plan.stages import Stage
from convkit.host.recipe.keys.recipe import Recipe, target_key
from convkit.host.record.run_record import StageReport
from convkit.host.store.store import StageRecord
from convkit.host.toolchain.device_detection import find_device
from convkit.protocol.findings.finding import Finding, Place, Remedy

_OF_TARGET = "target."  # how a worker's remedy begins its own key target


def addressed_report(report: StageReport, recipe: Path) -> StageReport:
    """Insert the target's and the recipe's names into remedies: workers do not know them, nor do
    shared stages.
    """
    findings = tuple(_addressed(finding, report.target, recipe) for finding in report.findings)
    return dataclasses.replace(report, findings=findings)


def _addressed(finding: Finding, target: str | None, recipe: Path) -> Finding:
    """Insert the target's and the recipe's names into a remedy."""
    remedy = finding.remedy
    if remedy is not None and target is not None and finding.code == "E101":
        command = f"convkit run {shlex.quote(os.path.relpath(recipe))} --only {shlex.quote(target)}"
        return dataclasses.replace(
            finding, remedy=Remedy(f"Run it on a machine that has it: {command}")
        )
    if (
        remedy is None
        or target is None
        or not any(path.startswith(_OF_TARGET) for path in remedy.change)
    ):
        return finding
    change = {
        (
            f"{target_key(target)}.{path.removeprefix(_OF_TARGET)}"
            if path.startswith(_OF_TARGET)
            else path
        ): value
        for path, value in remedy.change.items()
    }
    return dataclasses.replace(finding, remedy=dataclasses.replace(remedy, change=change))


def absent(stage: Stage, message: str) -> Finding:
    """Return E101: this machine lacks what the stage needs."""
    return Finding(
        "E101", message, Place(), {"stage": stage.id}, Remedy("Run it on a machine that has it.")
    )


def absent_device(stage: Stage) -> str | None:
    """Return what is missing if a stage's device is absent; its tools, which can be large, are then
    not fetched.
    """
    if stage.target is None or stage.kind not in ("build", "verify"):
        return None
    found = find_device(stage.device)
    return None if found.there else f"this machine has no {stage.device} device: {found.detail}"


def simulated_instead(stage: Stage, recipe: Recipe, missing: Mapping[str, str]) -> Finding | None:
    """Return what is missing if a simulation replaces the target's device, and how to proceed on
    the device. `missing` says why, by device or runtime.
    """
    if stage.kind != "verify" or stage.target is None or not stage.stand_in:
        return None
    target = recipe.owner_of(stage.target).targets[stage.target]
    why = missing.get(target.device) or missing.get(target.runtime, f"{target.runtime} is absent")
    message, severity = target.absent(why)
    return dataclasses.replace(absent(stage, message), severity=severity)


def skipped_report(report: StageReport, stage: Stage, error: str) -> StageReport:
    """Return the report of a stage that this machine cannot run, and why."""
    findings = (*report.findings, absent(stage, error))
    return dataclasses.replace(report, status="skipped", error=error, findings=findings)


def two_artifacts(stage: Stage, known: StageRecord, artifact: str) -> Finding:
    """Return R101: the same inputs and tools produced a different artifact before."""
    return Finding(
        "R101",
        f"{stage.id} produced a different artifact from the same inputs and tools: "
        f"{known.artifact[:12]}, now {artifact[:12]}",
        evidence={"before": known.artifact, "now": artifact},
    )
