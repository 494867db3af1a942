"""Judges one target under one runtime release."""

import dataclasses
from collections.abc import Mapping, Sequence

from convkit.findings.model import Finding, Place, Remedy
from convkit.metrics.limits import breaches
from convkit.recipe.models import Recipe, Target, Tolerance
from convkit.recipe.tolerances import limits_of, tolerance_for
from convkit.record.model import CaseVerdict, OutputVerdict, TargetStatus, Verification
from convkit.tensors import dimension_axes
from convkit.verdict.invariance import blame_original, invariance_findings
from convkit.verdict.precision_remedy import search_remedy
from convkit.verdict.probes import probe_findings
from convkit.verdict.simulated import simulation_findings
from convkit.worker.protocol import (
    CaseMetrics,
    CaseRecord,
    ReferenceResult,
    TensorMetrics,
    VerifyResult,
)

# Findings of these families explain why parity fails, so they precede the parity findings.
_CAUSES = ("C", "E")
# Findings that only say that results are off; the least informative last.
_SYMPTOMS = ("N304", "N402", "N101", "N102")

# Consequences of an overflow, a lost variance or a coarse scale: outputs that no longer vary,
# inputs that no longer matter.
_FOLLOWS_FROM_PRECISION = ("N304", "C108")
# Modules whose quantization moves the outputs far away: a warning beside the error that it leads
# to.
_QUANTIZED_AWAY = "Q102"


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
    example_sizes: Mapping[str, int] | None = None,
) -> Verification:
    """Return the verdict on a verification's metrics.

    `stage_findings` are those the verify stage itself made, `example_sizes` the axis sizes the
    model was traced at (they tell a shape that was baked in from other failures), `override` a
    tolerance over the recipe's.
    """
    described = {case.name: case for case in reference.cases}
    cases = [
        _judge_case(metrics, described[metrics.case], recipe, target, override)
        for metrics in measured.cases
    ]
    findings = [
        *_that_matter(stage_findings, cases),
        *probe_findings(
            measured.probes,
            _strictest(recipe, target, override),
            [tensor.name for tensor in recipe.inputs],
        ),
        *_baked_axis_findings(cases, recipe, example_sizes or {}),
        *invariance_findings(recipe, target, measured, override),
        *_case_findings(cases, search_remedy(recipe, target)),
        *_completeness_findings(cases, recipe, stage_findings),
        *simulation_findings(recipe, target, measured, override),
    ]
    findings += _folded_branch(findings, reference, target)
    findings = _without_guesses(findings, recipe)
    findings = list(blame_original(findings, measured))
    explained = any(
        (finding.is_error and finding.code.startswith("N2")) or finding.code == _QUANTIZED_AWAY
        for finding in findings
    )
    findings.sort(
        key=lambda finding: (
            not finding.is_error,
            _beside_proof(finding, findings),
            _distance_from_cause(finding, explained=explained),
        )
    )
    failed = (
        any(finding.is_error for finding in findings)
        or not all(case.passed for case in cases)
        or not cases
    )
    status: TargetStatus = "failed" if failed else "verified"
    return Verification(
        stage=stage,
        version=version,
        status=status,
        evidence=measured.evidence,
        headline=_headline(findings, cases),
        cases=tuple(cases),
        omitted=(*reference.omitted, *measured.omitted),
        probes=measured.probes,
        providers=measured.providers,
        simulated=measured.simulated,
        invariance=measured.invariance,
        findings=tuple(findings),
    )


def _that_matter(stage_findings: Sequence[Finding], cases: Sequence[CaseVerdict]) -> list[Finding]:
    """Drop explanations of an error that is within the tolerance, however wide that is."""
    off = not all(case.passed for case in cases)
    return [finding for finding in stage_findings if off or finding.code not in ("N401", "N402")]


# What shows that two tensors take each other's place: the probes prove it, with a recipe change.
_EXCHANGES = ("C108", "C109", "C110", "C208")
# What a search adds the place to, and not the cause: a branch that was followed on an example, and
# a model that draws at random.
_KNOWN_BETTER = ("E208", "N303", *_EXCHANGES)
# What depends on padding or the batch: says more than a place of which nothing else is known.
_DEPENDS = ("N301", "N302")
_PLACE_ONLY = "N408"
# Kinds of causes that a branch which an export made constant can have.
_BRANCHES = ("missing", "extra", "wiring", "operator", "place")


def _without_guesses(findings: Sequence[Finding], recipe: Recipe) -> list[Finding]:
    """Leave out what is merely possible where a cause is proven, and remedies that cannot help."""
    proven = [finding for finding in findings if _is_proven(finding)]
    kinds = {str(finding.evidence["kind"]) for finding in proven}
    left_out = {"N402"} if proven else set()
    if proven and not kinds.intersection(_BRANCHES):
        left_out.add("E208")
    kept = [finding for finding in findings if finding.code not in left_out]
    if recipe.model.onnx is None:
        return kept
    remedy = Remedy("Correct the file where it was made: convkit changes no node of it.")
    return [
        dataclasses.replace(finding, remedy=remedy) if finding.code == "N402" else finding
        for finding in kept
    ]


def _beside_proof(finding: Finding, findings: Sequence[Finding]) -> int:
    """Return a finding's rank where a search has proven a cause, and 0 for all where none has."""
    proven = [each for each in findings if _is_proven(each)]
    if not proven:
        return 0
    if finding.code in _KNOWN_BETTER:
        return -4
    if finding.code in _DEPENDS and all(each.code == _PLACE_ONLY for each in proven):
        return -2
    return 0 if not _is_proven(finding) else -1 if finding.code == _PLACE_ONLY else -3


def _is_proven(finding: Finding) -> bool:
    """Say whether a search has shown that correcting this makes the difference vanish."""
    return finding.evidence.get("proven") is True


def _distance_from_cause(finding: Finding, *, explained: bool) -> int:
    if explained and finding.code in _FOLLOWS_FROM_PRECISION:
        return 3 + len(_SYMPTOMS)
    if finding.code[0] in _CAUSES:
        return 0
    return 3 + _SYMPTOMS.index(finding.code) if finding.code in _SYMPTOMS else 1


def _folded_branch(
    findings: Sequence[Finding], reference: ReferenceResult, target: Target
) -> list[Finding]:
    """Return E208 where a float32 model is off, and its original's Python decides by values that an
    export folds.
    """
    lines = reference.value_dependent
    off = [finding for finding in findings if finding.is_error and finding.code in _SYMPTOMS]
    if not lines or not off or target.low_precision is not None or target.quantization is not None:
        return []
    shown = ", ".join(lines[:3]) + (f" and {len(lines) - 3} more" if len(lines) > 3 else "")
    return [
        Finding(
            "E208",
            f"the model decides by the values of tensors at {shown}, which an export that follows"
            " one example makes constant, and the results are off",
            Place(source=lines[0], case=off[0].place.case),
            {"lines": list(lines)},
            Remedy(
                "Write the branch with torch.where or torch.cond, or export with the exporter"
                " torch."
            ),
        )
    ]


def _judge_case(
    metrics: CaseMetrics,
    case: CaseRecord,
    recipe: Recipe,
    target: Target,
    override: Tolerance | None,
) -> CaseVerdict:
    outputs = tuple(
        _judge_output(output, tolerance_for(recipe, target, output.output, override))
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


def _judge_output(metrics: TensorMetrics, tolerance: Tolerance) -> OutputVerdict:
    failures: list[str] = []
    if metrics.mismatch is not None:
        failures.append(metrics.mismatch)
    elif metrics.elements == 0:
        failures.append("no elements to compare")
    else:
        if metrics.nan_candidate or metrics.nan_reference:
            failures.append(
                f"NaN: {metrics.nan_candidate} in the converted model,"
                f" {metrics.nan_reference} in the original"
            )
        if metrics.inf_mismatched:
            failures.append(f"mismatched infinities: {metrics.inf_mismatched}")
        failures += [str(breach) for breach in breaches(metrics, limits_of(tolerance))]
    return OutputVerdict(
        metrics.output, not failures, tuple(failures), limits_of(tolerance), metrics
    )


def _strictest(recipe: Recipe, target: Target, override: Tolerance | None) -> Tolerance:
    """Return the tolerance with the largest absolute limit, the loosest meaning of 'the same'."""
    tolerances = [tolerance_for(recipe, target, output.name, override) for output in recipe.outputs]
    return max(
        tolerances,
        key=lambda tolerance: tolerance.max_abs if tolerance.max_abs is not None else -1.0,
    )


def _baked_axis_findings(
    cases: Sequence[CaseVerdict], recipe: Recipe, example: Mapping[str, int]
) -> list[Finding]:
    """Find an axis that is fixed inside the graph: the runtime fails at every other size."""
    failed = [case for case in cases if case.error is not None]
    ran = [case for case in cases if case.error is None]
    if not failed:
        return []
    findings = []
    for axis in recipe.axes:
        sizes_ran = {case.sizes.get(axis) for case in ran}
        sizes_failed = {case.sizes.get(axis) for case in failed}
        fixed = (
            next(iter(sizes_ran)) if len(sizes_ran) == 1 else example.get(axis) if not ran else None
        )
        if fixed is None or fixed in sizes_failed:
            continue
        inputs = [
            t.name
            for t in recipe.inputs
            if any(axis in dimension_axes(dimension) for dimension in t.shape)
        ]
        findings.append(
            Finding(
                "C106",
                f"axis {axis!r} is fixed at {fixed} inside the graph: the model runs at that size"
                f" and at no other (inputs {', '.join(map(repr, inputs))})",
                Place(tensor=inputs[0] if inputs else None, case=failed[0].case),
                {
                    "axis": axis,
                    "fixed": fixed,
                    "failed_at": sorted(size for size in sizes_failed if size is not None),
                },
                Remedy(
                    f"Write shapes in the model with tensor.shape, so that {axis!r} stays symbolic,"
                    " and export again."
                ),
            )
        )
    return findings


def _case_findings(cases: Sequence[CaseVerdict], search: Remedy | None) -> list[Finding]:
    """Return one finding per code and output, at the first and so simplest case that shows it."""
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
        finding, message=f"{finding.message} (first of {count} of {total} cases)"
    )


def _run_failure(case: CaseVerdict) -> Finding:
    return Finding(
        "E206",
        f"the runtime failed on case {case.case!r} ({_sizes(case.sizes)}): {case.error}",
        Place(case=case.case),
        {"sizes": case.sizes},
        Remedy(
            "Look for a shape fixed inside the graph, or an operator the runtime release does not"
            " support."
        ),
    )


def _output_failure(case: CaseVerdict, output: OutputVerdict, search: Remedy | None) -> Finding:
    metrics = output.metrics
    place = Place(tensor=output.output, case=case.case)
    evidence = {
        "sizes": case.sizes,
        "failures": list(output.failures),
        "worst_index": list(metrics.worst_index),
    }
    what = (
        f"{output.output!r} in case {case.case!r} ({_sizes(case.sizes)}):"
        f" {'; '.join(output.failures)}"
    )
    if metrics.mismatch is not None:
        code = "C205" if "dtype" in metrics.mismatch else "C207"
        return Finding(code, what, place, evidence, Remedy("Correct the output in the recipe."))
    if metrics.elements == 0:
        return Finding(
            "N104", what, place, evidence, Remedy("Give every axis a size of at least one.")
        )
    if metrics.nan_reference:
        remedy = Remedy(
            "Repair the model, or leave the case out by name.", {"verify.skip": [case.case]}
        )
        return Finding("N103", what, place, evidence, remedy)
    if metrics.nan_candidate or metrics.inf_mismatched:
        remedy = search or Remedy("Keep the module that overflows in float32.")
        return Finding("N102", what, place, evidence, remedy)
    worst = (
        f", worst at {list(metrics.worst_index)}: {metrics.worst_candidate:.6g}, original"
        f" {metrics.worst_reference:.6g}"
    )
    remedy = search or Remedy("Find the cause, or set the tolerance to what you can justify.")
    return Finding("N101", what + worst, place, evidence, remedy)


def _completeness_findings(
    cases: Sequence[CaseVerdict], recipe: Recipe, stage_findings: Sequence[Finding]
) -> list[Finding]:
    if not cases:
        cause = next((finding.code for finding in stage_findings if finding.is_error), None)
        remedy = (
            "Keep at least one case."
            if cause is None
            else f"Remove what {cause} names: it kept every case from running."
        )
        return [Finding("N104", "no case was run: nothing is proven", remedy=Remedy(remedy))]
    findings = []
    for output in recipe.outputs:
        missing = [
            c.case
            for c in cases
            if c.error is None and output.name not in {o.output for o in c.outputs}
        ]
        if missing:
            message = f"output {output.name!r} was not compared in {', '.join(missing)}"
            findings.append(Finding("C201", message, Place(tensor=output.name, case=missing[0])))
    return findings


def _headline(findings: Sequence[Finding], cases: Sequence[CaseVerdict]) -> str:
    errors = [finding for finding in findings if finding.is_error]
    if errors:
        return f"{errors[0].code} {errors[0].message}"
    worst = max((output.metrics.max_abs for case in cases for output in case.outputs), default=0.0)
    return f"{len(cases)} cases, largest absolute error {worst:.2g}"


def _sizes(sizes: Mapping[str, int]) -> str:
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) or "fixed shapes"
