"""Applies a recipe's waivers to a target's verdict. Pure.

A waiver hides nothing: the findings stay errors, the cases stay failed, and the target becomes
`waived`, never `verified`.
"""

import dataclasses
import datetime as dt
from collections.abc import Sequence

from convkit.host.recipe.keys.waivers import Waiver
from convkit.host.record.run_record import (
    AppliedWaiver,
    TargetReport,
    TargetStatus,
    Verification,
    WaiverState,
    worst_status,
)
from convkit.protocol.findings.finding import Finding, Remedy

_EXPIRED = "R110"
_UNUSED = "R111"


def day_of(moment: float) -> dt.date:
    """Return the day (UTC) of a time in seconds since the epoch, by which a run's waivers count."""
    return dt.datetime.fromtimestamp(moment, dt.UTC).date()


def expired(waivers: Sequence[Waiver], day: dt.date) -> list[Waiver]:
    """Return the waivers that no longer count on a day."""
    return [waiver for waiver in waivers if waiver.last_day < day]


def with_waivers(report: TargetReport, waivers: Sequence[Waiver], day: dt.date) -> TargetReport:
    """Return a target's report with the recipe's waivers applied as of `day`.

    Verifications and the target become `waived` if each of their errors is. One that did not
    compare anything stays as it is.
    """
    plain = without_waivers(report)
    applied = tuple(
        AppliedWaiver(each.code, each.reason, each.until, _state(each, plain, day))
        for each in waivers
        if each.target == report.name
    )
    if not applied:
        return plain
    codes = frozenset(each.code for each in applied if each.state == "active")
    verifications = tuple(_waived(each, applied, codes) for each in plain.verifications)
    findings = (*_findings(applied, report.name), *plain.findings)
    status = _status(plain, verifications, codes)
    changed = dataclasses.replace(
        plain, verifications=verifications, findings=findings, status=status, waivers=applied
    )
    return _with_headline(changed)


def without_waivers(report: TargetReport) -> TargetReport:
    """Return a target's report as it would be if the recipe waived nothing, except for its
    headline.
    """
    verifications = tuple(
        dataclasses.replace(each, status="failed") if each.status == "waived" else each
        for each in report.verifications
    )
    findings = tuple(each for each in report.findings if each.code not in (_EXPIRED, _UNUSED))
    status = "failed" if report.status == "waived" else report.status
    return dataclasses.replace(
        report, verifications=verifications, findings=findings, status=status, waivers=()
    )


def _state(waiver: Waiver, report: TargetReport, day: dt.date) -> WaiverState:
    judged = any(verification.cases for verification in report.verifications)
    matches = waiver.code in _errors(report)
    if waiver.last_day < day:
        return "expired" if matches else "expired-unused"
    if matches:
        return "active"
    return "unused" if judged and report.status != "broken" else "unchecked"


def _errors(report: TargetReport) -> set[str]:
    found = [finding for each in report.verifications for finding in each.findings]
    return {finding.code for finding in (*report.findings, *found) if finding.is_error}


def _waived(
    verification: Verification, applied: Sequence[AppliedWaiver], codes: frozenset[str]
) -> Verification:
    errors = {finding.code for finding in verification.findings if finding.is_error}
    if verification.status != "failed" or not verification.cases or not errors or errors - codes:
        return verification
    until = min(each.until for each in applied if each.code in errors)
    return dataclasses.replace(
        verification, status="waived", headline=f"waived until {until}: {verification.headline}"
    )


def _status(
    plain: TargetReport, verifications: Sequence[Verification], codes: frozenset[str]
) -> TargetStatus:
    if plain.status != "failed":
        return plain.status
    upstream = {finding.code for finding in plain.findings if finding.is_error}
    statuses = [each.status for each in verifications]
    if upstream:
        proven = any(each.cases for each in verifications)
        statuses.append("waived" if proven and not upstream - codes else "failed")
    return worst_status(statuses)


def _findings(applied: Sequence[AppliedWaiver], target: str) -> list[Finding]:
    """Return what is wrong with waivers: they expired, or they match nothing."""
    found = []
    for each in applied:
        ended = f"the waiver of {each.code} in {target} ({each.reason})"
        match each.state:
            case "expired":
                fix = "Fix the error, or, if it is still acceptable, set a later date in `until`."
                message = f"{ended} expired on {each.until}, so the error counts again"
                found.append(Finding(_EXPIRED, message, remedy=Remedy(fix)))
            case "unused" | "expired-unused":
                message = f"{ended} matches nothing: the target shows no such error"
                found.append(Finding(_UNUSED, message, remedy=Remedy("Remove it from the recipe.")))
            case "active" | "unchecked":
                pass
    return found


def _with_headline(report: TargetReport) -> TargetReport:
    """Let an expired waiver lead, and say `waived` in the headline of a waived target."""
    gone = next((finding for finding in report.findings if finding.code == _EXPIRED), None)
    if gone is not None and report.status == "failed":
        return dataclasses.replace(report, headline=f"{gone.code} {gone.message}", leading=gone)
    shown = next((each for each in report.verifications if each.status == "waived"), None)
    if report.status == "waived" and shown is not None:
        return dataclasses.replace(report, headline=shown.headline, leading=shown.leading)
    return report
