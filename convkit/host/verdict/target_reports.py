"""Turns stage results into target reports: statuses, headlines and the run's exit code."""

import dataclasses
import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence

from convkit.host.findings.catalog import is_symptom, is_unproven
from convkit.host.findings.consequences import cause_of
from convkit.host.plan.stages import export_id, join_id, precision_id, reference_id, verify_id
from convkit.host.recipe.keys.recipe import Recipe, Target, Tolerance
from convkit.host.record.run_record import (
    StageReport,
    TargetReport,
    TargetStatus,
    Verification,
    worst_status,
)
from convkit.host.verdict.cause_preference import behind_cause, is_beyond_usual, proven_cause
from convkit.host.verdict.executed_beside import beside_executed
from convkit.host.verdict.findings.changed_results import blame_random
from convkit.host.verdict.findings.departure_from_original import with_feasible_remedies
from convkit.host.verdict.findings.doubtful_settings import advice
from convkit.host.verdict.findings.nothing_judged import is_unproven as leaves_open
from convkit.host.verdict.findings.skipped_case_remedies import with_all_skips
from convkit.host.verdict.findings.unreachable_limits import folded, futile_searches, out_of_reach
from convkit.host.verdict.target_verdict import judge
from convkit.host.verdict.verdict_by_processor import in_families, of_family, with_unknown
from convkit.host.verdict.verdict_without_device import without_device
from convkit.host.verdict.waivers import with_waivers
from convkit.protocol.errors import EXIT_FAILED, EXIT_VERIFIED, ConvkitError
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import (
    JOINED_FILE,
    BuildResult,
    ExportResult,
    PrecisionResult,
    ReferenceResult,
    StageResult,
    TensorMetrics,
    VerifyResult,
)

# A build warning that explains why the following verification fails: calibration samples had no
# effect. It does if most of quantization's error comes from the same module.
_EXPLAINING, _COSTS = "Q106", "Q102"
# The export's findings about inputs that the model refuses, wherever it runs.
_WRONG_INPUTS = frozenset({"C101", "C102", "C104", "C105", "E410", "E411"})


@dataclasses.dataclass(frozen=True)
class Finished:
    """A finished stage, reduced to what verdicts need."""

    report: StageReport
    result: StageResult | None


def judge_targets(
    recipe: Recipe, names: Sequence[str], stages: Mapping[str, Finished], day: dt.date
) -> tuple[TargetReport, ...]:
    """Return the reports of targets, each once; those of a recipe with parts first the joined
    target, then each part's share of it. Waivers count as of `day` (UTC), and for joined targets
    only.
    """
    known = dict.fromkeys(names)
    ordered = [target for target in recipe.targets if target in known]
    shares = [name for name in known if name not in recipe.targets]
    reports = []
    for name in dict.fromkeys([*ordered, *(share.rpartition("/")[0] for share in shares)]):
        if name in known:
            judge_whole = judge_joined if recipe.parts else judge_target
            reports.append(judge_whole(name, recipe, stages, day))
        reports += [
            judge_target(share, recipe.owner_of(share), stages, day)
            for share in shares
            if share.rpartition("/")[0] == name
        ]
    return beside_executed(recipe, reports) if not recipe.parts else tuple(reports)


def judge_joined(
    name: str, recipe: Recipe, stages: Mapping[str, Finished], day: dt.date
) -> TargetReport:
    """Return the report of a target of all parts, from its joined run, with the recipe's waivers
    as of `day` (UTC).
    """
    target = recipe.targets[name]
    (verification,) = _verifications(join_id(name), None, recipe, target, stages, {}, None)
    shares = recipe.shares_of(name)
    from_reference = stages[reference_id(recipe)].report.findings
    findings = _unique([*from_reference, *advice(recipe, target, None)])
    statuses = [verification.status]
    statuses += _from_findings(findings, statuses)
    status = worst_status(statuses)
    headline, leading = _headline(status, findings, (verification,))
    built = [stages[f"build:{share}"].result for share in shares]
    sizes = [each.size_bytes for each in built if isinstance(each, BuildResult)]
    report = TargetReport(
        name=name,
        runtime=_each_once(share.runtime for share in shares.values()),
        device=_each_once(share.device for share in shares.values()),
        precision=_each_once(precision_text(share, None) for share in shares.values()),
        status=status,
        headline=headline,
        verifications=(verification,),
        findings=findings,
        files=(f"models/{name}/{JOINED_FILE}",) if len(sizes) == len(shares) else (),
        size_bytes=sum(sizes),
        leading=leading,
    )
    return with_waivers(report, recipe.waive, day)


def _each_once(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))


def judge_target(
    name: str,
    recipe: Recipe,
    stages: Mapping[str, Finished],
    day: dt.date,
    override: Tolerance | None = None,
) -> TargetReport:
    """Return a target's report, from its stages, with the recipe's waivers as of `day` (UTC)."""
    report = _judge_target(name, recipe, stages, override)
    return with_waivers(report, recipe.waive, day)


def _judge_target(
    name: str, recipe: Recipe, stages: Mapping[str, Finished], override: Tolerance | None
) -> TargetReport:
    target = recipe.targets[name]
    export = stages.get(export_id(recipe, name) or "")
    build = stages[f"build:{name}"]
    traced = export if export is not None else build
    example = (
        traced.result.example_sizes if isinstance(traced.result, ExportResult | BuildResult) else {}
    )
    verifications = tuple(
        verification
        for version in target.versions or (None,)
        for verification in _verifications(
            verify_id(name, version), version, recipe, target, stages, example, override
        )
    )
    planned = stages.get(precision_id(name))
    reference = stages[reference_id(recipe)]
    upstream = [stage for stage in (export, reference, planned, build) if stage is not None]
    own = [finding for stage in upstream for finding in own_findings(stage, export)]
    found = blame_random(_unique([*own, *advice(recipe, target, override)]))
    corrected = with_feasible_remedies(found, recipe, reference.report)
    rounded = reference.result.rounded if isinstance(reference.result, ReferenceResult) else ()
    measured = _measured(recipe, stages)
    futile = futile_searches(recipe, target, corrected, measured, override, rounded)
    limits = [*futile, *out_of_reach(f for each in verifications for f in each.findings)]
    explained = _behind_causes(with_all_skips(corrected, recipe), verifications)
    findings = (*futile, *folded(explained, limits))
    status = _status(findings, verifications)
    built = build.result if isinstance(build.result, BuildResult) else None
    plan = (
        planned.result
        if planned is not None and isinstance(planned.result, PrecisionResult)
        else None
    )
    headline, leading = _headline(status, findings, verifications)
    return TargetReport(
        name=name,
        runtime=target.runtime,
        device=target.device,
        precision=precision_text(target, plan),
        status=status,
        headline=headline,
        verifications=verifications,
        findings=findings,
        files=tuple(f"models/{name}/{file}" for file in built.files) if built else (),
        size_bytes=built.size_bytes if built else 0,
        traced_at=dict(example),
        plan=plan,
        leading=leading,
    )


def _behind_causes(
    findings: Sequence[Finding], verifications: Sequence[Verification]
) -> Sequence[Finding]:
    """Return what stages before a verification found, of which some follow from the cause that each
    of the target's verifications has proven.
    """
    causes = [proven_cause(each.findings) for each in verifications]
    first = causes[0] if causes else None
    if first is None or any(each is None or each.code != first.code for each in causes):
        return findings
    return behind_cause(findings, first)


def _measured(recipe: Recipe, stages: Mapping[str, Finished]) -> list[tuple[str, TensorMetrics]]:
    """Return what the first verification of a recipe's targets measured, by case."""
    for name, target in recipe.targets.items():
        for version in target.versions or (None,):
            stage = stages.get(verify_id(name, version))
            if stage is not None and isinstance(stage.result, VerifyResult):
                return [(case.case, each) for case in stage.result.cases for each in case.outputs]
    return []


def _status(findings: Sequence[Finding], verifications: Sequence[Verification]) -> TargetStatus:
    statuses = [verification.status for verification in verifications]
    return worst_status([*statuses, *_from_findings(findings, statuses)])


def _from_findings(
    findings: Sequence[Finding], statuses: Sequence[TargetStatus]
) -> list[TargetStatus]:
    """Return the status that findings of the stages before a verification add, if any."""
    if any(finding.is_error for finding in findings):
        return [] if worst_status(statuses) == "broken" else ["failed"]
    undecided = worst_status(statuses) == "verified" and any(map(leaves_open, findings))
    return ["unproven"] if undecided else []


def precision_text(target: Target, plan: PrecisionResult | None) -> str:
    """Return a target's precision on one line, with `auto` resolved."""
    chosen = target.low_precision or target.quantization
    if chosen is None:
        return str(target.precision)
    decided = (
        type(chosen).model_validate(encode(plan.precision))
        if plan is not None and chosen.is_auto
        else chosen
    )
    return str(decided)


def _verifications(
    stage_id: str,
    version: str | None,
    recipe: Recipe,
    target: Target,
    stages: Mapping[str, Finished],
    example: Mapping[str, int],
    override: Tolerance | None,
) -> tuple[Verification, ...]:
    """Return a stage's verdict; one for each family of processors if they differ."""
    stage = stages[stage_id]
    reference = stages[reference_id(recipe)]
    if isinstance(stage.result, VerifyResult) and isinstance(reference.result, ReferenceResult):
        measured = in_families(stage.result, target.families)
        judged = [
            judge(
                recipe,
                target,
                reference.result,
                each,
                stage=stage.report.id,
                version=version,
                override=override,
                stage_findings=of_family(
                    stage.report.findings,
                    each.family,
                    gets_the_rest=each.evidence == "device" or len(measured) == 1,
                ),
                reference_findings=reference.report.findings,
                example_sizes=example,
            )
            for each in measured
        ]
        if target.verdict_without_device == "foreseen" and stage.result.evidence == "simulated":
            return tuple(map(without_device, judged))
        return tuple(with_unknown(each, stage.result) for each in judged)
    status = _status_without_result(stage.report, stages)
    headline = (
        stage.report.reason
        if stage.report.status == "blocked"
        else stage.report.error or stage.report.reason
    )
    findings = stage.report.findings
    leading = findings[0] if findings else None
    if leading is not None:
        headline = f"{leading.code} {leading.message}"
    return (
        Verification(
            stage.report.id,
            version,
            status,
            "skipped",
            headline,
            findings=findings,
            leading=leading,
        ),
    )


def _status_without_result(report: StageReport, stages: Mapping[str, Finished]) -> TargetStatus:
    """Return the status of a verification that did not run: that of the stage that stopped it."""
    if report.status == "blocked" and report.error is not None and report.error in stages:
        report = stages[report.error].report
    match report.status:
        case "skipped":
            return "skipped"
        case "broken" | "blocked":
            return "broken"
        case "hit" | "done":  # it finished with errors, so nothing was built from it
            return "failed"


def _headline(
    status: TargetStatus, findings: tuple[Finding, ...], verifications: tuple[Verification, ...]
) -> tuple[str, Finding | None]:
    """Return the headline, and the finding that it shows, if any."""
    matching = [verification for verification in verifications if verification.status == status]
    said = matching[0] if matching else None
    errors = [finding for finding in findings if finding.is_error and cause_of(finding) is None]
    errors.sort(key=lambda finding: (is_unproven(finding), is_symptom(finding.code)))
    explaining = [finding for finding in findings if _explains(finding, verifications)]
    undecided = filter(leaves_open, findings if said is None and status == "unproven" else ())
    for finding in [*errors, *undecided, *(explaining if status == "failed" else [])]:
        if said is None or said.leading is None or not _gives_way(finding, said.leading):
            return f"{finding.code} {finding.message}", finding
    return (said.headline, said.leading) if said is not None else (status, None)


def _gives_way(finding: Finding, leading: Finding) -> bool:
    """Say whether an error of an earlier stage comes after the one that leads a verification."""
    return is_unproven(finding) or (is_beyond_usual(finding) and not is_beyond_usual(leading))


def _explains(finding: Finding, verifications: Sequence[Verification]) -> bool:
    costs = (f for each in verifications for f in each.findings if f.code == _COSTS)
    costly = next((each.evidence.get("costly") for each in costs), None)
    module = finding.place.module or ""
    return finding.code == _EXPLAINING and isinstance(costly, list) and module in costly


def exit_code(status: TargetStatus) -> int:
    """Return a run's exit code. Skipped and unproven targets fail only with `--strict`, which the
    CLI adds.
    """
    match status:
        case "verified" | "waived" | "unproven" | "skipped":
            return EXIT_VERIFIED
        case "failed":
            return EXIT_FAILED
        case "broken":
            return ConvkitError.exit_code


def own_findings(stage: Finished, export: Finished | None) -> Iterator[Finding]:
    """Yield a stage's findings, without the failure of a reference whose inputs the export has
    already found to be wrong: the original refuses them, too.
    """
    known = export is not None and any(
        finding.code in _WRONG_INPUTS for finding in export.report.findings
    )
    for finding in stage.report.findings:
        if not (known and stage.report.kind == "reference" and finding.code == "E204"):
            yield finding


def _unique(findings: list[Finding]) -> tuple[Finding, ...]:
    """Drop findings repeated by a later stage: export and reference both detect a wrong dtype."""
    return tuple(
        {(finding.code, str(finding.place)): finding for finding in reversed(findings)}.values()
    )[::-1]
