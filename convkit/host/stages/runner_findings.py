"""The findings that a stage's runner adds or completes: what its worker could not know."""

import dataclasses
import os
import shlex
from pathlib import Path

from convkit.host.plan.stages import Stage
from convkit.host.recipe.keys.recipe import target_key
from convkit.host.record.run_record import StageReport
from convkit.host.store.store import StageRecord
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


def two_artifacts(stage: Stage, known: StageRecord, artifact: str) -> Finding:
    """Return R101: the same inputs and tools produced a different artifact before."""
    return Finding(
        "R101",
        f"{stage.id} produced a different artifact from the same inputs and tools: "
        f"{known.artifact[:12]}, now {artifact[:12]}",
        evidence={"before": known.artifact, "now": artifact},
    )
