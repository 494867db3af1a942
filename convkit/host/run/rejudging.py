"""`convkit verify RUN`: judges a stored run's metrics again, without running any model."""

import contextlib
import dataclasses
import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from convkit.host.recipe.keys.recipe import Recipe, Tolerance
from convkit.host.recipe.reading.yaml_document import read_document
from convkit.host.record.run_record import RunRecord, TargetReport, Verification, worst_status
from convkit.host.run.run_folder import read_record
from convkit.host.verdict.findings.swapped_or_dead_inputs import with_changes
from convkit.host.verdict.target_reports import exit_code
from convkit.host.verdict.target_verdict import judge
from convkit.host.verdict.verdict_by_processor import of_family
from convkit.host.verdict.verdict_without_device import without_device
from convkit.host.verdict.waivers import day_of, with_waivers, without_waivers
from convkit.protocol.contract import Contract
from convkit.protocol.errors import UsageError
from convkit.protocol.messages import CaseMetrics, CaseRecord, Layout, ReferenceResult, VerifyResult
from convkit.protocol.same_fields import taken_from


def parse_tolerance(limits: Sequence[str]) -> Tolerance | None:
    """Parse texts like `max_abs=1e-3` into a tolerance; None without texts. Raises UsageError."""
    if not limits:
        return None
    values = dict(map(_limit, limits))
    try:
        return Tolerance(**values)
    except ValidationError as error:
        problem = error.errors()[0]
        raise UsageError(f"--tolerance {problem['loc'][0]}: {problem['msg']}") from error


def _limit(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    if name in Tolerance.model_fields:
        with contextlib.suppress(ValueError):
            return name, float(value)
    known = ", ".join(Tolerance.model_fields)
    raise UsageError(
        f"--tolerance {text}: write LIMIT=VALUE, such as max_abs=1e-3; the limits are {known}"
    )


def rejudge(folder: Path, tolerance: Tolerance | None, day: dt.date | None = None) -> RunRecord:
    """Return a run's record with every verification judged again, with `tolerance` replacing the
    recipe's. Waivers count as of `day` (UTC), by default that of the run.
    """
    record = read_record(folder)
    return rejudge_record(record, recorded_recipe(record, folder), tolerance, day)


def rejudge_record(
    record: RunRecord,
    recipe: Recipe,
    tolerance: Tolerance | None = None,
    day: dt.date | None = None,
) -> RunRecord:
    """Like `rejudge`, for a record and its recipe that have been read. Pure."""
    counted = day or day_of(record.started)
    targets = tuple(
        with_waivers(
            _rejudge_target(without_waivers(target), record, recipe, tolerance),
            recipe.waive,
            counted,
        )
        for target in record.targets
    )
    status = worst_status([target.status for target in targets])
    return dataclasses.replace(record, targets=targets, status=status, exit_code=exit_code(status))


def recorded_recipe(record: RunRecord, folder: Path) -> Recipe:
    """Return the recipe as it was when it ran; files that it refers to may no longer exist.

    Raises UsageError if this version of convkit cannot read it.
    """
    try:
        return Recipe.model_validate(
            read_document(record.recipe_text, str(folder / "recipe.yaml")).content
        )
    except ValidationError as error:
        raise UsageError(
            f"{folder}: this version of convkit cannot read the run's recipe: {error}"
        ) from error


def _rejudge_target(
    target: TargetReport, record: RunRecord, recipe: Recipe, tolerance: Tolerance | None
) -> TargetReport:
    if not any(verification.cases for verification in target.verifications):
        return target
    verifications = tuple(
        (
            _rejudge_verification(verification, target, record, recipe, tolerance)
            if verification.cases
            else verification
        )
        for verification in target.verifications
    )
    statuses = [verification.status for verification in verifications]
    if any(finding.is_error for finding in target.findings):
        statuses.append("failed")
    status = worst_status(statuses)
    judged = dataclasses.replace(target, verifications=verifications, status=status)
    shown = next((each for each in verifications if each.status == status), None)
    if shown is None:  # an error of an earlier stage, which no tolerance changes
        return judged
    return dataclasses.replace(judged, headline=shown.headline, leading=shown.leading)


def _rejudge_verification(
    old: Verification,
    target: TargetReport,
    record: RunRecord,
    recipe: Recipe,
    tolerance: Tolerance | None,
) -> Verification:
    stage = next(stage for stage in record.stages if stage.id == old.stage)
    recipe = recipe.owner_of(target.name)
    chosen = recipe.targets[target.name]
    rows = [each for each in target.verifications if each.stage == old.stage]
    judged = judge(
        recipe,
        chosen,
        _reference_of(old),
        _measured(old, record.contract),
        stage=old.stage,
        version=old.version,
        override=tolerance,
        stage_findings=of_family(
            stage.findings, old.family, gets_the_rest=old.evidence == "device" or len(rows) == 1
        ),
        reference_findings=[
            finding
            for each in record.stages
            if each.kind == "reference"
            for finding in each.findings
        ],
        example_sizes=target.traced_at,
    )
    foreseen = chosen.verdict_without_device == "foreseen"
    return without_device(judged) if foreseen and old.evidence == "simulated" else judged


def _reference_of(old: Verification) -> ReferenceResult:
    """Return what the original did, as far as the record holds it."""
    cases = (
        CaseRecord(case.case, "ladder", case.description, case.sizes, case.seconds)
        for case in old.cases
    )
    return ReferenceResult(tuple(cases), (), Layout(old.rows), old.branches, old.rounded)


def _measured(old: Verification, contract: Contract) -> VerifyResult:
    """Return what was measured, as far as the record holds it."""
    cases = (
        CaseMetrics(
            case.case,
            case.seconds,
            tuple(output.metrics for output in case.outputs),
            case.error,
            tuple(output.unpadded for output in case.outputs if output.unpadded is not None),
        )
        for case in old.cases
    )
    return taken_from(
        VerifyResult,
        old,
        evidence="simulated" if old.evidence == "simulated" else "device",
        session=contract,
        fallbacks=(),
        cases=tuple(cases),
        probes=with_changes(old.probes, contract),
    )
