"""Drafts a recipe for a report as its user would, runs it, and scores what convkit says."""

import dataclasses
import re
import time
from collections.abc import Mapping
from pathlib import Path

import yaml

from convkit.host.diagnosis.diagnose_command import RunDiagnosis, diagnose_record
from convkit.host.draft.init_command import Drafting, draft
from convkit.host.facts.planning_facts import ToolchainKind
from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.protocol.errors import ConvkitError
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import encode
from reports.report import TARGETS, Report, Right

_GREEN = ("verified", "waived")
# Seconds. A report that takes longer counts as wrong.
LIMIT = 180.0
# The set's words for owners whose name in the evidence is a word.
_WORDS: Mapping[str, str] = {
    "module": "module's code",
    "kernel": "runtime's kernel",
    "fusion": "runtime's fusion",
}
# Whom a finding names where its evidence does not: by its code, as its entry in the catalog does.
_OWNERS: Mapping[str, str] = {
    "N401": "runtime's fusion",
    "N402": "exporter",
    "N403": "exporter",
    "N405": "exporter",
    "N406": "exporter",
    "N407": "exporter",
    "C209": "exporter",
    "E208": "module's code",
    "E302": "module's code",
    "E305": "module's code",
    "N510": "module's code",
    "E306": "module's code",
    "N303": "original",
    "N103": "original",
    "N201": "recipe",
    "N202": "recipe",
    "N203": "recipe",
    "N205": "recipe",
    "Q102": "recipe",
    "Q105": "processor",
}


@dataclasses.dataclass(frozen=True)
class TargetScore:
    """What convkit makes of one target: `wrong` are the aspects that it gets wrong, of detected,
    cause, owner, place and remedy; `alarm` for a target that is right. `said` is its leading
    finding.
    """

    target: str
    right: Right | None
    status: str
    wrong: tuple[str, ...]
    said: str


@dataclasses.dataclass(frozen=True)
class ReportScore:
    """The scores of a report's targets, and how long drafting and running took."""

    report: Report
    targets: tuple[TargetScore, ...]
    seconds: float

    @property
    def wrong(self) -> bool:
        """True if any target is not right in everything, or if it took too long."""
        return not self.seconds <= LIMIT or any(target.wrong for target in self.targets)


def score(report: Report, folder: Path, home: Path, toolchain: ToolchainKind) -> ReportScore:
    """Write a report into a folder of its own, run it, and score every target."""
    begun = time.monotonic()
    place = folder / report.name.replace("_", "-")
    try:
        recipe = _recipe(report, place, Home(home), toolchain)
        record = run_recipe(RunOptions(recipe, Home(home), toolchain=toolchain, track=False)).record
    except ConvkitError as error:
        said = f"{type(error).__name__}: {error}"
        failed = [
            TargetScore(name, report.right.get(name), "none", ("detected",), said)
            for name in report.targets
        ]
        return ReportScore(report, tuple(failed), time.monotonic() - begun)
    seconds = time.monotonic() - begun
    found = {each.target: each for each in diagnose_record(record)}
    statuses = {target.name: target.status for target in record.targets}
    scored = [
        score_target(report, name, statuses[name], found.get(name), place)
        for name in report.targets
    ]
    return ReportScore(report, tuple(scored), seconds)


def _recipe(report: Report, place: Path, home: Home, toolchain: ToolchainKind) -> Path:
    model = report.write(place)
    recipe = place / "recipe.yaml"
    example = None if report.graph else f"{model}:example"
    name = str(model) if report.graph else f"{model}:build"
    drafting = Drafting(name, recipe, example=example, keeps_example=example is not None)
    text = draft(drafting, home, lambda _message: None, toolchain=toolchain)
    content = yaml.safe_load(text)
    content["name"] = place.name
    content["targets"] = {each: TARGETS[each] for each in report.targets}
    recipe.write_text(yaml.safe_dump(content, sort_keys=False))
    return recipe


def score_target(
    report: Report, name: str, status: str, found: RunDiagnosis | None, place: Path
) -> TargetScore:
    """Score what is said of one target; `place` is the folder that the report was written to."""
    right = report.right.get(name)
    cause = found.cause if found is not None else None
    said = "" if cause is None else _line(cause)
    if right is None:
        return TargetScore(name, None, status, () if status in _GREEN else ("alarm",), said)
    if status in _GREEN or cause is None:
        warned = () if found is None else found.others
        is_right = right.corrected or any(not _wrong(report, each, right, place) for each in warned)
        return TargetScore(name, right, status, () if is_right else ("detected",), said)
    return TargetScore(name, right, status, tuple(_wrong(report, cause, right, place)), said)


def _wrong(report: Report, cause: Finding, right: Right, place: Path) -> list[str]:
    """Return the aspects that a finding gets wrong."""
    wrong = [] if re.search(right.cause, cause.message, re.IGNORECASE) else ["cause"]
    if owner_of(cause) != right.owner:
        wrong.append("owner")
    where = f"{cause.place} {cause.message}"
    if not re.search(report.place_of(right, place), where, re.IGNORECASE):
        wrong.append("place")
    if not _offers(cause, right):
        wrong.append("remedy")
    return wrong


def _offers(finding: Finding, right: Right) -> bool:
    remedy = finding.remedy
    if remedy is None:
        return False
    text = f"{remedy.text} {encode(remedy.change)}"
    return re.search(right.remedy, text, re.IGNORECASE) is not None


def owner_of(finding: Finding) -> str:
    """Return whom a finding holds responsible, "" if it does not say."""
    told = finding.evidence.get("owner")
    if isinstance(told, str):
        return _WORDS.get(told, told)
    if "kernels are off" in finding.message:
        return "runtime's kernel"
    if finding.code == "E204":
        return {"export": "exporter", "build": "converter"}.get(
            str(finding.evidence.get("stage", "")).partition(":")[0], ""
        )
    return _OWNERS.get(finding.code, "")


def _line(finding: Finding) -> str:
    place = f" [{finding.place}]" if str(finding.place) else ""
    remedy = ""
    if finding.remedy is not None:
        change = f" {encode(finding.remedy.change)}" if finding.remedy.change else ""
        remedy = f" | {finding.remedy.label}: {finding.remedy.text}{change}"
    return f"{finding.code}{place} {finding.message}{remedy}"
