"""Judges one target under one runtime release."""

import dataclasses
from collections.abc import Mapping, Sequence

from convkit.host.findings.catalog import causes_first
from convkit.host.recipe.keys.low_precision_types import RESOLUTION, is_calibrated_for, low_type
from convkit.host.recipe.keys.recipe import Recipe, Target, Tolerance
from convkit.host.recipe.keys.tolerances import decided_by, limits_of, tolerance_for
from convkit.host.record.run_record import CaseVerdict, OutputVerdict, TargetStatus, Verification
from convkit.host.verdict.cause_preference import FIND_THE_CAUSE, proofs_first, without_guesses
from convkit.host.verdict.counted_explanations import relevant_findings
from convkit.host.verdict.findings.app_results import results_findings
from convkit.host.verdict.findings.changed_results import (
    blame_original,
    invariance_findings,
    weaken_batch_findings,
    weaken_explained_nan,
    with_nan_of_original,
)
from convkit.host.verdict.findings.device_and_simulation import simulation_findings
from convkit.host.verdict.findings.fixed_axis import fixed_axis_findings
from convkit.host.verdict.findings.limits_without_meaning import limit_findings
from convkit.host.verdict.findings.loop_calls import step_findings
from convkit.host.verdict.findings.low_precision_remedy import (
    FIND_MODULES,
    out_of_reach,
    search_remedy,
    without_exceptions,
)
from convkit.host.verdict.findings.nothing_judged import is_unproven, unjudged_findings
from convkit.host.verdict.findings.one_sided_branch import branch_findings
from convkit.host.verdict.findings.padding_errors import padding_findings
from convkit.host.verdict.findings.skipped_case_remedies import with_all_skips
from convkit.host.verdict.findings.swapped_or_dead_inputs import probe_findings
from convkit.host.verdict.findings.task_score import evaluation_findings, passing_text
from convkit.host.verdict.findings.unreachable_limits import folded, unreachable_limits
from convkit.host.verdict.float32_resolution import ResolutionLimits, resolution
from convkit.protocol.contract import Dimension, dimension_axes, dimension_size
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import (
    CaseMetrics,
    CaseRecord,
    ReferenceResult,
    TensorMetrics,
    UnpaddedMetrics,
    VerifyResult,
    is_of_plain_rows,
)
from convkit.protocol.metrics.few_labels import shares_of_few
from convkit.protocol.metrics.limit_kinds import judged_error
from convkit.protocol.metrics.limits import problems
from convkit.protocol.metrics.metric_registry import absolute_limit
from convkit.protocol.metrics.near_zero_outputs import largest_values
from convkit.protocol.metrics.number_text import distinct_texts
from convkit.protocol.metrics.unusually_small import usual_magnitudes
from convkit.protocol.same_fields import taken_from

_OTHER_OUTPUT = (  # the reference says if the original does not follow the recipe
    "Correct the file at its source: the original follows the recipe, unless C205 or C207 says"
    " otherwise."
)


def judge(
    recipe: Recipe,
    target: Target,
    reference: ReferenceResult,
    measured: VerifyResult,
    *,
    stage: str,
    version: str | None,
    override: Tolerance | None = None,
    stage_findings: Sequence[Finding] = (),
    reference_findings: Sequence[Finding] = (),
    example_sizes: Mapping[str, int] | None = None,
) -> Verification:
    """Return the verdict on a verification's metrics.

    `stage_findings` are the verify stage's own, `reference_findings` the reference's,
    `example_sizes` the axis sizes with which the model was traced (they distinguish a baked-in
    shape from other failures), `override` is a tolerance that replaces the recipe's.
    """
    described = {case.name: case for case in reference.cases}
    largest = largest_values(measured.cases)
    resolved = resolution(stage_findings)
    usual = usual_magnitudes(
        (case.case, output.output, output.reference_rms)
        for case in measured.cases
        for output in case.outputs
    )
    few = shares_of_few(
        output
        for case in measured.cases
        if is_calibrated_for(target, case.case) and not is_of_plain_rows(case.case)
        for output in case.outputs
    )
    limits = ResolutionLimits(
        recipe, target, override, largest, resolved, reference.rounded, usual, few
    )
    cases = [
        _judge_case(metrics, described[metrics.case], recipe, limits) for metrics in measured.cases
    ]
    findings = _findings(
        recipe,
        target,
        reference,
        measured,
        cases,
        allowed=limits,
        stage_findings=stage_findings,
        reference_findings=reference_findings,
        example_sizes=example_sizes or {},
    )
    status, leading = _decide(findings, cases)
    return taken_from(
        Verification,
        measured,
        stage=stage,
        version=version,
        status=status,
        headline=_headline(leading, cases, passing_text(recipe, target, measured.evaluation)),
        cases=tuple(cases),
        omitted=(*reference.omitted, *measured.omitted),
        findings=tuple(findings),
        leading=leading,
        decided_by=decided_by(recipe, target),
        branches=reference.branches,
        rows=reference.layout.rows,
        rounded=tuple(each for each in reference.rounded if each.type == low_type(target)),
    )


def _findings(
    recipe: Recipe,
    target: Target,
    reference: ReferenceResult,
    measured: VerifyResult,
    cases: Sequence[CaseVerdict],
    *,
    allowed: ResolutionLimits,
    stage_findings: Sequence[Finding],
    reference_findings: Sequence[Finding],
    example_sizes: Mapping[str, int],
) -> list[Finding]:
    """Return every check's findings, causes before symptoms."""
    override = allowed.override
    unreachable_limit = (
        out_of_reach(recipe, target, override, largest_values(measured.cases)) is not None
    )
    own = without_exceptions(stage_findings) if unreachable_limit else stage_findings
    unreachable = unreachable_limits(recipe, target, cases, override, reference.rounded)
    findings = [
        *relevant_findings(own, cases, reference_findings),
        *_ladder_findings(
            recipe, target, reference, measured, cases, allowed, example_sizes, stage_findings
        ),
        *_completeness_findings(cases, recipe, stage_findings),
        *simulation_findings(recipe, target, measured, override),
        *step_findings(recipe, target, measured, cases, override),
        *results_findings(recipe, target, measured, override),
        *evaluation_findings(recipe, target, measured.evaluation, cases),
        *branch_findings(reference, cases),
        *limit_findings(recipe, target, cases),
        *unjudged_findings(
            recipe, target, cases, (*reference.omitted, *measured.omitted), measured.evaluation
        ),
    ]
    findings = weaken_explained_nan(without_guesses(findings, recipe))
    findings = blame_original(findings, measured, reference_findings)
    findings = with_nan_of_original(findings, reference_findings)
    ordered = proofs_first(causes_first(findings))
    usual = [each for each in unreachable if not each.is_error]
    limits = [each for each in unreachable if each.is_error]
    return with_all_skips([*limits, *folded(ordered, limits), *usual], recipe)


def _step(target: Target) -> float:
    """Return how far apart the numbers of a target's type are, in parts of an output's size; zero
    for float32.
    """
    low = low_type(target)
    return 0.0 if low is None else 2 * RESOLUTION[low]


def _ladder_findings(
    recipe: Recipe,
    target: Target,
    reference: ReferenceResult,
    measured: VerifyResult,
    cases: Sequence[CaseVerdict],
    allowed: ResolutionLimits,
    example_sizes: Mapping[str, int],
    stage_findings: Sequence[Finding],
) -> list[Finding]:
    """Return what the probes, the ladder's cases and the invariance checks find."""
    return [
        *probe_findings(
            measured.probes,
            _strictest(recipe, target, allowed.override),
            [tensor.name for tensor in recipe.inputs],
            step=_step(target),
        ),
        *padding_findings(recipe, cases),
        *fixed_axis_findings(cases, recipe, example_sizes, stage_findings),
        *weaken_batch_findings(
            invariance_findings(measured, allowed.of_output), reference.layout.rows, cases
        ),
        *_case_findings(
            cases, search_remedy(recipe, target, allowed.override, largest_values(measured.cases))
        ),
    ]


def _decide(
    findings: Sequence[Finding], cases: Sequence[CaseVerdict]
) -> tuple[TargetStatus, Finding | None]:
    """Return the status, and the finding that leads it: the first error, if there is one."""
    error = next((finding for finding in findings if finding.is_error), None)
    undecided = next((finding for finding in findings if is_unproven(finding)), None)
    if error is not None or not cases or not all(case.passed for case in cases):
        return "failed", error or undecided
    return ("unproven" if undecided else "verified"), undecided


def _judge_case(
    metrics: CaseMetrics, case: CaseRecord, recipe: Recipe, limits: ResolutionLimits
) -> CaseVerdict:
    shapes = {output.name: output.shape for output in recipe.outputs}
    unpadded = {each.metrics.output: each for each in metrics.unpadded}
    outputs = tuple(
        _judge_output(
            output,
            limits.of(output, case.name),
            unpadded.get(output.output),
            may_be_empty=_is_empty(shapes.get(output.output, ()), case.sizes),
        )
        for output in metrics.outputs
    )
    declared = {output.name for output in recipe.outputs}
    complete = metrics.error is None and declared == {output.output for output in outputs}
    return CaseVerdict(
        case=case.name,
        description=case.description,
        sizes=case.sizes,
        passed=complete and all(output.passed for output in outputs),
        seconds=metrics.seconds,
        outputs=outputs,
        error=metrics.error,
    )


def _is_empty(shape: Sequence[Dimension], sizes: Mapping[str, int]) -> bool:
    """Say whether a declared shape has no element at a case's sizes: an empty cache."""
    return any(
        dimension_size(dimension, sizes) == 0
        for dimension in shape
        if all(axis in sizes for axis in dimension_axes(dimension))
    )


def _judge_output(
    metrics: TensorMetrics,
    limits: dict[str, float],
    unpadded: UnpaddedMetrics | None,
    *,
    may_be_empty: bool,
) -> OutputVerdict:
    found = problems(metrics, limits)
    if may_be_empty:  # its shape was right; `_completeness_findings` wants another case
        found = tuple(problem for problem in found if problem.kind != "empty")
    return OutputVerdict(
        output=metrics.output,
        passed=not found,
        failures=tuple(problem.message for problem in found),
        limits=limits,
        metrics=metrics,
        problems=found,
        unpadded=unpadded,
    )


def _strictest(recipe: Recipe, target: Target, override: Tolerance | None) -> Tolerance:
    """Return the tolerance with the largest absolute limit, the loosest meaning of 'the same'."""
    tolerances = [tolerance_for(recipe, target, output.name, override) for output in recipe.outputs]

    def allowed(tolerance: Tolerance) -> float:
        limit = absolute_limit(limits_of(tolerance))
        return -1.0 if limit is None else limit

    return max(tolerances, key=allowed)


def _case_findings(cases: Sequence[CaseVerdict], search: Remedy | None) -> list[Finding]:
    """Return one finding per code and output, at the first and thus simplest case that shows it."""
    findings: dict[tuple[str, str], Finding] = {}
    counts: dict[tuple[str, str], int] = {}
    for case in cases:
        if case.error is not None:
            _note(findings, counts, "", _run_failure(case))
        for output in case.outputs:
            if not output.passed:
                _note(findings, counts, output.output, _output_failure(case, output, search))
    return [
        finding if counts[key] == 1 else _with_count(finding, counts[key], len(cases))
        for key, finding in findings.items()
    ]


def _note(
    findings: dict[tuple[str, str], Finding],
    counts: dict[tuple[str, str], int],
    output: str,
    finding: Finding,
) -> None:
    key = (finding.code, output)
    findings.setdefault(key, finding)
    counts[key] = counts.get(key, 0) + 1


def _with_count(finding: Finding, count: int, total: int) -> Finding:
    return dataclasses.replace(
        finding, message=f"{finding.message} ({count} of {total} cases fail; this is the first)"
    )


def _run_failure(case: CaseVerdict) -> Finding:
    return Finding(
        "E206",
        f"the runtime failed on case {case.case!r} ({_sizes(case.sizes)}): {case.error}",
        Place(case=case.case),
        {"sizes": case.sizes},
        Remedy(
            "Look for a shape fixed inside the graph, or an operator that this release of the"
            " runtime does not support."
        ),
    )


def _output_failure(case: CaseVerdict, output: OutputVerdict, search: Remedy | None) -> Finding:
    metrics = output.metrics
    place = Place(tensor=output.output, case=case.case)
    evidence = {
        "sizes": case.sizes,
        "failures": list(output.failures),
        "worst_index": list(judged_error(metrics, output.limits).index),
    }
    what = (
        f"{output.output!r} in case {case.case!r} ({_sizes(case.sizes)}):"
        f" {'; '.join(output.failures)}"
    )
    if metrics.mismatch is not None:
        code = "C205" if metrics.mismatch_kind == "dtype" else "C207"
        return Finding(code, what, place, evidence, Remedy(_OTHER_OUTPUT))
    if any(problem.kind == "rows" for problem in output.problems):
        remedy = search or Remedy(
            "If such rows do not matter to you, raise this output's max_abs: it bounds how far a"
            " score may be from the threshold."
        )
        return Finding("N105", what, place, evidence, remedy)
    if metrics.elements == 0:
        return Finding(
            "N104", what, place, evidence, Remedy("Every axis needs a size of at least 1.")
        )
    if metrics.undefined:
        skipped = case.case.partition(":")[0]  # the recipe's name for cases of one kind
        remedy = Remedy(
            "Fix the model, or leave out the case by its name.", {"verify.skip": [skipped]}
        )
        return Finding("N103", what, place, evidence, remedy)
    if metrics.lost_nan:
        return Finding("N102", what, place, evidence, FIND_THE_CAUSE)
    if metrics.nan_candidate or metrics.inf_mismatched:
        remedy = Remedy("Keep the module that overflows in float32.")
        if search is not None and search.change:  # no tolerance accepts NaN
            remedy = Remedy(FIND_MODULES, search.change)
        return Finding("N102", what, place, evidence, remedy)
    judged = judged_error(metrics, output.limits)
    values = distinct_texts(judged.candidate, judged.reference, digits=6)
    worst = f", worst at {list(judged.index)}: {values[0]}, original {values[1]}"
    remedy = search or FIND_THE_CAUSE
    return Finding("N101", what + worst, place, evidence | {"max_abs": metrics.max_abs}, remedy)


def _completeness_findings(
    cases: Sequence[CaseVerdict], recipe: Recipe, stage_findings: Sequence[Finding]
) -> list[Finding]:
    if not cases:
        cause = next((finding.code for finding in stage_findings if finding.is_error), None)
        remedy = (
            "Keep at least one case."
            if cause is None
            else f"Fix {cause} first: it kept every case from running."
        )
        return [Finding("N104", "no case ran, so nothing is proven", remedy=Remedy(remedy))]
    findings = []
    for output in recipe.outputs:
        compared = [o for case in cases for o in case.outputs if o.output == output.name]
        if compared and not any(_has_evidence(o) for o in compared):
            message = (
                f"output {output.name!r} is empty in every case, so nothing is proven about it"
            )
            advice = Remedy(
                "Keep a case in which every axis of the output is at least 1. If its rows depend on"
                " the data, choose samples for which the model returns some."
            )
            findings.append(Finding("N104", message, Place(tensor=output.name), remedy=advice))
        missing = [
            c.case
            for c in cases
            if c.error is None and output.name not in {o.output for o in c.outputs}
        ]
        if missing:
            message = f"output {output.name!r} was not compared in {', '.join(missing)}"
            findings.append(Finding("C201", message, Place(tensor=output.name, case=missing[0])))
    return findings


def _has_evidence(output: OutputVerdict) -> bool:
    """Say whether an output had elements to compare, or something wrong with it. A row of the
    original without a counterpart is reported with the output that is judged for its axis.
    """
    rows = output.metrics.rows
    return bool(output.metrics.elements or output.problems or (rows is not None and rows.reference))


def _headline(leading: Finding | None, cases: Sequence[CaseVerdict], scored: str | None) -> str:
    if leading is not None:
        return f"{leading.code} {leading.message}"
    if scored is not None:
        return scored
    worst = max((output.metrics.max_abs for case in cases for output in case.outputs), default=0.0)
    return f"{len(cases)} cases, largest absolute error {worst:.2g}"


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "fixed shapes"
