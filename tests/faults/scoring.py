"""Runs the corpus and scores what convkit says of it."""

import dataclasses
import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path

from convkit.host.home import Home
from convkit.host.record.run_record import RunRecord
from convkit.host.repair.repair_command import repair_recipe
from convkit.host.repair.repair_progress import worsened
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import encode
from faults.corpus import Fault, Healthy
from faults.cpu import passes_on_the_cpu

# What the corpus must reach, in shares of its faults; for repairs, of those that a recipe's change
# can repair.
DETECTED, NAMED_RIGHT, REPAIRED = 1.0, 0.95, 0.8

_GRAVITY = ("error", "warning", "note")


@dataclasses.dataclass(frozen=True)
class FaultScore:
    """What convkit made of a fault.

    `repaired` is None where no change of the recipe can repair it; `outdated` is True where one did
    nevertheless. `reported` are the codes of all errors and warnings, `leading` those that a reader
    meets first; `harm` says what the remedies broke that was right. `hidden` says whether the model
    passes on the CPU as it is, where the fault says that it does.
    """

    fault: Fault
    detected: bool
    misnamed: str | None
    repaired: bool | None
    ending: str
    found: tuple[str, ...]
    outdated: bool = False
    hidden: bool | None = None
    reported: frozenset[str] = frozenset()
    leading: tuple[str, ...] = ()
    harm: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class HealthyScore:
    """What convkit made of a healthy model: `alarms` are empty where it raised nothing."""

    model: Healthy
    alarms: tuple[str, ...]


def score_fault(fault: Fault, folder: Path, home: Path) -> FaultScore:
    """Write a fault into a folder, run its recipe with `--repair`, and score the outcome."""
    recipe = fault.write(folder / fault.name.replace(":", "-").replace("_", "-"))
    outcome = repair_recipe(_options(recipe, home))
    record = outcome.first
    misnamed = _misnamed(fault, record)
    repaired = outcome.repaired if fault.repaired is True else None
    found = tuple(_lines(record.findings))
    outdated = outcome.repaired and fault.repaired is not True
    hidden = passes_on_the_cpu(recipe, record, Home(home)) if fault.hidden else None
    return FaultScore(
        fault,
        _detected(fault, record),
        misnamed,
        repaired,
        outcome.ending,
        found,
        outdated,
        hidden,
        reported=frozenset(each.code for each in record.findings if each.severity != "note"),
        leading=tuple(_leading(record)),
        harm=tuple(worsened(record, outcome.last.record)),
    )


def crashed(fault: Fault, error: BaseException) -> FaultScore:
    """Return the score of a fault that convkit failed on in another way than it should."""
    ending = f"{type(error).__name__}: {error}"
    return FaultScore(fault, False, ending, False if fault.repaired is True else None, ending, ())


def score_healthy(model: Healthy, folder: Path, home: Path) -> HealthyScore:
    """Write a healthy model into a folder, run its recipe, and collect what was wrongly raised."""
    recipe = model.write(folder / model.name.replace(":", "-").replace("_", "-"))
    record = run_recipe(_options(recipe, home)).record
    alarms = [*_lines([finding for finding in record.findings if finding.severity != "note"])]
    if record.status != "verified":
        alarms.append(f"{record.status}: {'; '.join(target.headline for target in record.targets)}")
    return HealthyScore(model, tuple(alarms))


def _options(recipe: Path, home: Path) -> RunOptions:
    return RunOptions(recipe, Home(home), toolchain="host", track=False)


def _detected(fault: Fault, record: RunRecord) -> bool:
    """Say whether a run shows that something is wrong: it is not verified, or the expected finding
    is there.
    """
    return record.status != "verified" or fault.code in {
        finding.code for finding in record.findings
    }


def _misnamed(fault: Fault, record: RunRecord) -> str | None:
    """Say what is wrong with how a fault was named; None where cause, place and remedy are right
    and come first.
    """
    leading = _leading(record)
    if fault.code not in leading:
        return f"{fault.code} does not lead: {', '.join(leading) or 'nothing'} does"
    candidates = [finding for finding in record.findings if finding.code == fault.code]
    placed = [finding for finding in candidates if _stands_at(finding, fault.place)]
    if not placed:
        return (
            f"{fault.code} is not at {fault.place!r} but at"
            f" {'; '.join(str(each.place) for each in candidates)}"
        )
    if not any(_offers(finding, fault) for finding in placed):
        offered = "; ".join(
            f"{each.remedy.text} {each.remedy.change}" if each.remedy else "none" for each in placed
        )
        return f"the remedy is not {fault.remedy!r} {fault.change or ''} but: {offered}"
    return None


def _leading(record: RunRecord) -> list[str]:
    """Return the codes that a reader meets first: the headlines', or those of the gravest findings
    of a green run.
    """
    wrong = [target for target in record.targets if target.status != "verified"]
    if wrong:
        return list(dict.fromkeys(target.headline.split(" ")[0] for target in wrong))
    gravest = min(
        (finding.severity for finding in record.findings), key=_GRAVITY.index, default=None
    )
    return list(
        dict.fromkeys(finding.code for finding in record.findings if finding.severity == gravest)
    )


def _stands_at(finding: Finding, place: str | None) -> bool:
    parts = [str(part) for part in dataclasses.astuple(finding.place) if part]
    return place is None or any(fnmatch.fnmatchcase(part, place) for part in parts)


def _offers(finding: Finding, fault: Fault) -> bool:
    remedy = finding.remedy
    if remedy is None or fault.remedy.lower() not in remedy.text.lower():
        return False
    return fault.change is None or encode(remedy.change) == encode(fault.change)


def _lines(findings: Sequence[Finding]) -> Iterator[str]:
    for finding in findings:
        place = f" [{finding.place}]" if str(finding.place) else ""
        yield f"{finding.severity} {finding.code}{place} {finding.message}"
