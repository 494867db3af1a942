"""Summarizes a run's record: verdict, findings and their locations, evidence, and gaps. Pure."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from convkit.host.findings.consequences import cause_of
from convkit.host.record.display_text import first_line
from convkit.host.record.run_record import (
    AppliedWaiver,
    CaseVerdict,
    RunRecord,
    StageReport,
    TargetReport,
    Verification,
    WaiverState,
)
from convkit.protocol.findings.finding import Finding

SEVERITIES = ("error", "warning", "note")
# The start of a remedy's path: whose target it is about.
_TARGET = re.compile(r"^targets\.[^.]+")


def first_failing_case(verification: Verification) -> CaseVerdict | None:
    """Return the simplest case that failed; cases are ordered from simple to hard."""
    return next((case for case in verification.cases if not case.passed), None)


def evidence_of(target: TargetReport) -> tuple[str, ...]:
    """Return the kinds of evidence for a target's verdict (`device`, `simulated`, `skipped`),
    without duplicates.
    """
    return tuple(dict.fromkeys(verification.evidence for verification in target.verifications))


def stages_of(record: RunRecord, target: str) -> tuple[StageReport, ...]:
    """Return the stages that belong to one target only."""
    return tuple(stage for stage in record.stages if stage.target == target)


def seconds_of(record: RunRecord, target: str) -> float:
    """Return the total duration of a target's own stages in seconds, whenever they ran."""
    return sum(stage.seconds for stage in stages_of(record, target))


@dataclasses.dataclass(frozen=True)
class LocatedFinding:
    """A finding with everything that shows it: targets, runtime releases, or a shared stage.
    `waived` are the targets in which the recipe waives it. `consequences` follow from it.
    """

    finding: Finding
    where: tuple[str, ...]
    waived: tuple[str, ...] = ()
    consequences: tuple["LocatedFinding", ...] = ()


def causes(record: RunRecord) -> tuple[LocatedFinding, ...]:
    """Return the located findings as people read them: what follows from another one is among the
    consequences of that, and not beside it.
    """
    found = located_findings(record)
    below: dict[int, list[LocatedFinding]] = {}
    for each in found:
        if (place := _cause(each, found)) is not None:
            below.setdefault(place, []).append(each)
    folded = {id(each) for those in below.values() for each in those}
    return tuple(
        dataclasses.replace(each, consequences=tuple(below.get(place, ())))
        for place, each in enumerate(found)
        if id(each) not in folded
    )


def _cause(located: LocatedFinding, found: Sequence[LocatedFinding]) -> int | None:
    """Return the place of what a finding follows from in all targets that show it, if known."""
    code = cause_of(located.finding)
    return next(
        (
            place
            for place, each in enumerate(found)
            if each.finding.code == code
            and each is not located
            and cause_of(each.finding) is None
            and {*located.where} <= {*each.where}
        ),
        None,
    )


def located_findings(record: RunRecord) -> tuple[LocatedFinding, ...]:
    """Return the findings without duplicates, each with the targets and stages that show it:
    errors first, and among them those that explain a target's failure. A verdict has already chosen
    from the findings of the stage that it judges: what explains a difference within the tolerance
    says nothing.
    """
    found: dict[str, Finding] = {}
    where: dict[str, list[str]] = {}
    following: set[tuple[str, str, str]] = set()

    def note(finding: Finding, place: str) -> None:
        if cause_of(finding) is not None:
            following.add((finding.code, finding.message, place))
        key = _said_once(finding)
        found[key] = finding if key not in found else _joined(found[key], finding)
        places = where.setdefault(key, [])
        if place not in places:
            places.append(place)

    for target in record.targets:
        for verification in target.verifications:
            for finding in verification.findings:
                note(finding, target.name)
        for finding in target.findings:
            note(finding, target.name)
    for stage in record.unjudged_stages:
        for finding in stage.findings:
            place = stage.target or stage.id
            if (finding.code, finding.message, place) not in following:  # said by the target
                note(finding, place)
    leading = {_said_once(target.leading) for target in record.targets if target.leading}
    targets = {target.name for target in record.targets}
    failed = {
        (found[key].code, found[key].message, place)
        for key, places in where.items()
        for place in places
        if found[key].is_error
    }

    def is_said(key: str) -> bool:
        """Return True for a warning that is an error in each target that has it, such as N303."""
        finding = found[key]
        said = {place for place in targets if (finding.code, finding.message, place) in failed}
        return not finding.is_error and bool(said) and targets & {*where[key]} <= said

    ordered = sorted(
        (key for key in found if not is_said(key)),
        key=lambda key: (SEVERITIES.index(found[key].severity), key not in leading),
    )
    waived = {
        (each.code, target.name)
        for target in record.targets
        for each in target.waivers
        if each.state == "active"
    }
    return tuple(
        LocatedFinding(
            found[key],
            tuple(where[key]),
            tuple(
                place
                for place in where[key]
                if found[key].is_error and (found[key].code, place) in waived
            ),
        )
        for key in ordered
    )


def _said_once(finding: Finding) -> str:
    """Return what two findings share that say the same of two targets, each with the change for its
    own.
    """
    remedy = finding.remedy
    change = {} if remedy is None else remedy.change
    paths = [(_TARGET.sub("targets.*", path), value) for path, value in change.items()]
    text = None if remedy is None else remedy.text
    return repr((finding.code, finding.severity, finding.message, finding.place, text, paths))


def _joined(first: Finding, second: Finding) -> Finding:
    """Return a finding with the changes of both, which differ in their target's name alone."""
    if first.remedy is None or second.remedy is None:
        return first
    change = first.remedy.change | second.remedy.change
    return dataclasses.replace(first, remedy=dataclasses.replace(first.remedy, change=change))


def severity_text(located: LocatedFinding) -> str:
    """Return a finding's severity, and whether it is waived: `error, waived in ort-int8`."""
    waived = waived_text(located)
    return f"{located.finding.severity}, {waived}" if waived else located.finding.severity


def waived_text(located: LocatedFinding) -> str:
    """Return `waived`, with the targets unless it is all that show the finding; or nothing."""
    if not located.waived or located.waived == located.where:
        return "waived" if located.waived else ""
    return f"waived in {', '.join(located.waived)}"


_STATES: dict[WaiverState, str] = {
    "active": "waived until {}",
    "unused": "waived until {}, but not found",
    "unchecked": "waived until {}, but nothing was compared",
    "expired": "waived until {}, which has passed",
    "expired-unused": "waived until {}, which has passed, and not found",
}


def waiver_lines(record: RunRecord) -> tuple[str, ...]:
    """Return a line per waiver of the recipe: target, code, until when, reason."""
    return tuple(
        f"{target.name}: {waiver_text(each)}"
        for target in record.targets
        for each in target.waivers
    )


def waiver_text(waiver: AppliedWaiver) -> str:
    """Return what became of a waiver: code, until when, reason."""
    return f"{waiver.code} {_STATES[waiver.state].format(waiver.until)}: {waiver.reason}"


@dataclasses.dataclass(frozen=True)
class LeftOut:
    """Something that was not proven, and why."""

    what: str
    reason: str


def left_out(record: RunRecord) -> tuple[LeftOut, ...]:
    """Return everything that this run does not prove: skipped targets, stages that did not run,
    omitted cases that apply to the model.

    Items with the same reason are grouped; consequences of a skipped target are not repeated.
    """
    skipped = {target.name for target in record.targets if target.status == "skipped"}
    items: dict[str, list[str]] = {}
    for target in record.targets:
        if target.name in skipped:
            items.setdefault(target.headline, []).append(f"target {target.name}")
    for stage in record.stages:
        if stage.status in ("skipped", "blocked") and stage.target not in skipped:
            why = stage.reason if stage.status == "blocked" else stage.error or stage.reason
            items.setdefault(first_line(why), []).append(f"stage {stage.id}")
    for target in record.targets:
        for verification in target.verifications:
            name = verified_name(target, verification)
            if verification.status == "skipped" and target.name not in skipped:
                items.setdefault(verification.headline, []).append(f"verification of {name}")
    for reason, names in _omitted(record, applies=True).items():
        items.setdefault(reason, []).extend(names)
    for reason, names in _padding(record).items():
        items.setdefault(reason, []).extend(names)
    return tuple(LeftOut(", ".join(dict.fromkeys(what)), reason) for reason, what in items.items())


def inapplicable(record: RunRecord) -> tuple[LeftOut, ...]:
    """Return the cases that could prove nothing: the recipe has nothing for them to test, or other
    cases cover it.
    """
    omitted = _omitted(record, applies=False)
    return tuple(LeftOut(", ".join(cases), reason) for reason, cases in omitted.items())


def inapplicable_cases(record: RunRecord) -> frozenset[str]:
    """Return the names of the cases that could prove nothing."""
    return frozenset(
        case.name
        for target in record.targets
        for verification in target.verifications
        for case in verification.omitted
        if not case.applies
    )


def _omitted(record: RunRecord, *, applies: bool) -> dict[str, list[str]]:
    """Return the omitted cases by reason: those that apply to the model, or the others."""
    omitted: dict[str, dict[str, list[str]]] = {}
    for target in record.targets:
        for verification in target.verifications:
            name = verified_name(target, verification)
            for case in verification.omitted:
                if case.applies == applies:
                    omitted.setdefault(case.reason, {}).setdefault(case.name, []).append(name)
    verified = _verified_names(record)
    return {reason: _cases_by_target(cases, verified) for reason, cases in omitted.items()}


def _cases_by_target(cases: Mapping[str, Sequence[str]], verified: Sequence[str]) -> list[str]:
    """Return cases with the targets that left them out: `cases padded, ragged of cpu`.

    If every target left them out, none is listed.
    """
    together: dict[tuple[str, ...], list[str]] = {}
    for case, names in cases.items():
        together.setdefault(tuple(dict.fromkeys(names)), []).append(case)
    texts = []
    for names, those in together.items():
        text = f"{'case' if len(those) == 1 else 'cases'} {', '.join(those)}"
        if set(names) != set(verified):
            text += f" of {', '.join(names)}"
        texts.append(text)
    return texts


def _verified_names(record: RunRecord) -> list[str]:
    return [
        verified_name(target, verification)
        for target in record.targets
        for verification in target.verifications
    ]


def _padding(record: RunRecord) -> dict[str, list[str]]:
    """Return the measurements at padding, which are not judged, by a reason that states their
    difference.
    """
    worst: dict[str, float] = {}
    places: dict[str, list[str]] = {}
    for target in record.targets:
        for verification in target.verifications:
            for metrics in (
                output.metrics for case in verification.cases for output in case.outputs
            ):
                if metrics.padding_elements:
                    worst[metrics.output] = max(
                        worst.get(metrics.output, 0.0), metrics.padding_max_abs
                    )
                    places.setdefault(metrics.output, []).append(
                        verified_name(target, verification)
                    )
    masks = {spec.name: spec.mask for spec in record.contract.outputs}
    reasons: dict[str, list[str]] = {}
    for name, largest in worst.items():
        reason = f"{masks.get(name)} marks it as padding; it differs by at most {largest:.2g} there"
        reasons.setdefault(reason, []).append(
            f"padding of {name} in {', '.join(dict.fromkeys(places[name]))}"
        )
    return reasons


def verified_name(target: TargetReport, verification: Verification) -> str:
    """Return a target's name, with the runtime release and the family of processors if it was
    verified under several.
    """
    if len(target.verifications) > 1 and verification.label:
        return f"{target.name} ({target.runtime} {verification.label})"
    return target.name


def verdict(record: RunRecord) -> str:
    """Return a one-sentence summary of the run: the number of targets per status."""
    counts = dict.fromkeys(("verified", "waived", "failed", "broken", "unproven", "skipped"), 0)
    for target in record.targets:
        counts[target.status] += 1
    parts = [f"{count} {status}" for status, count in counts.items() if count]
    total = len(record.targets)
    return f"{total} target{'' if total == 1 else 's'}: {', '.join(parts) or 'nothing was built'}"
