"""Whether a verdict means anything: whether a wrong model would have failed. Pure."""

import fnmatch
import math
from collections.abc import Iterator, Mapping, Sequence

from convkit.host.recipe.keys.recipe import Recipe, Target
from convkit.host.recipe.keys.tolerances import decided_by, limits_by_type
from convkit.host.record.run_record import CaseVerdict
from convkit.host.verdict.findings.constant_outputs import constant_finding
from convkit.host.verdict.findings.doubtful_settings import judges_labels_by_distance
from convkit.host.verdict.findings.limits_without_meaning import vacuous_limits
from convkit.host.verdict.findings.task_score import UNDECIDED, allowed_loss
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import EvaluationMetrics, OmittedCase, is_of_plain_rows, is_of_sweep
from convkit.protocol.messages.measurements import TensorMetrics
from convkit.protocol.metrics.limits import problems

# No limit, or none that a wrong model would exceed.
_NO_LIMIT = "N511"
# The task's score is what a model that knows nothing reaches.
_NO_SKILL = "N704"
_TOO_WIDE = "N501"
# A value that the original reads, and that no case changes.
_UNTRIED = "N513"
# What two vectors of one length differ by at an angle: |a - b| = |a| sqrt(2 - 2 cos). Twice that is
# left for the error's part along the original, and a little, where there is hardly an angle.
_ALONG = 2.0
_LEAST_ALONG = 0.02
# Rounding decides a few whole numbers otherwise; where most differ, others were computed.
_MOST_EQUAL = 0.5
# With no more than this share of the cases that a recipe could have, hardly anything was tried.
_FEW = 0.2


def unjudged_findings(
    recipe: Recipe,
    target: Target,
    cases: Sequence[CaseVerdict],
    omitted: Sequence[OmittedCase],
    scored: EvaluationMetrics | None,
) -> list[Finding]:
    """Return N511 for outputs that nothing judges, for limits that are blind to the error that an
    output has, and for a recipe that skips nearly all cases; N704 for a score that any model has.
    """
    by_task = decided_by(recipe, target) == "task metric"
    return [
        *(_unscored(recipe, target, cases) if by_task else _without_limits(recipe, cases)),
        *_skipped(recipe, cases, omitted),
        *(_without_skill(recipe, target, scored) if by_task and scored is not None else []),
    ]


def is_unproven(finding: Finding) -> bool:
    """Return True for what leaves open whether a wrong model would have failed."""
    if finding.code == _TOO_WIDE:
        return bool(finding.evidence.get("zeros_pass"))
    return finding.code in (_NO_LIMIT, _NO_SKILL, UNDECIDED, _UNTRIED)


def _are_other_labels(recipe: Recipe, limits: Mapping[str, float], metrics: TensorMetrics) -> bool:
    """Return whether most of an output's labels differ within a distance that its limits allow."""
    dtype = next((spec.dtype for spec in recipe.outputs if spec.name == metrics.output), "")
    by_distance = bool(limits) and judges_labels_by_distance(dtype, limits)
    return by_distance and not metrics.agreement >= _MOST_EQUAL


def _without_limits(recipe: Recipe, cases: Sequence[CaseVerdict]) -> Iterator[Finding]:
    found: dict[str, Finding] = {}
    judged = {each.output for case in cases for each in case.outputs if each.limits}
    lengths = _lengths(cases)
    for case in cases:
        for output in case.outputs:
            metrics, limits = output.metrics, output.limits
            if not metrics.elements or metrics.mismatch is not None or output.output in found:
                continue
            place = Place(tensor=output.output, case=case.case)
            if not limits and output.output not in judged:
                found[output.output] = Finding(
                    _NO_LIMIT,
                    f"no limit judges output {output.output!r}",
                    place,
                    remedy=Remedy("Give it a tolerance, or remove the empty one."),
                )
            elif _is_blind(limits, metrics, lengths.get(output.output, metrics.reference_rms)):
                found[output.output] = Finding(
                    _NO_LIMIT,
                    f"cosine is the only limit on {output.output!r}, and is blind to its error:"
                    f" nrmse is {metrics.nrmse:.3g} in case {case.case!r}",
                    place,
                    {"nrmse": metrics.nrmse, "limits": dict(limits)},
                    Remedy("Add a limit that follows the size of values, such as nrmse: 0.05."),
                )
            elif _are_other_labels(recipe, limits, metrics):
                found[output.output] = Finding(
                    _NO_LIMIT,
                    f"{output.output!r} is judged by distance, and {metrics.agreement:.0%} of its"
                    f" whole numbers are the original's in case {case.case!r}",
                    place,
                    {"agreement": metrics.agreement, "limits": dict(limits)},
                    Remedy(
                        "If they are labels, limit the share that may differ: agreement: 0.999."
                    ),
                )
    for name in sorted(judged - found.keys()):
        if (constant := constant_finding(name, cases)) is not None:
            found[name] = constant
    yield from found.values()


def _unscored(recipe: Recipe, target: Target, cases: Sequence[CaseVerdict]) -> Iterator[Finding]:
    """Yield N511 for outputs besides the scored one that are further off than their types allow.
    What the next call takes, such as a cache, shows in the score.
    """
    assert recipe.evaluate is not None
    scored = recipe.evaluate.output or recipe.outputs[0].name
    carried = tuple(recipe.steps.feeds) if recipe.steps is not None else ()
    for spec in recipe.outputs:
        if spec.name == scored or any(fnmatch.fnmatchcase(spec.name, each) for each in carried):
            continue
        limits = limits_by_type(recipe, target, spec.name, None)
        for case in cases:
            off = [
                problem.message
                for output in case.outputs
                if output.output == spec.name and output.passed
                for problem in problems(output.metrics, limits)
            ]
            if off:
                yield Finding(
                    _NO_LIMIT,
                    f"nothing judges output {spec.name!r}, only {scored!r} is scored, and it is off"
                    f" in case {case.case!r}: {'; '.join(off)}",
                    Place(tensor=spec.name, case=case.case),
                    {"limits": dict(limits)},
                    Remedy(f"Give {spec.name!r} a limit under verify.outputs."),
                )
                break


def _lengths(cases: Sequence[CaseVerdict]) -> dict[str, float]:
    """Return the largest rms of each output's values but in `plain-rows`, as for N501: a limit on
    an error judges an output that is small in some cases.
    """
    lengths: dict[str, float] = {}
    for case in cases:
        for output in () if is_of_plain_rows(case.case) else case.outputs:
            rms = output.metrics.reference_rms
            if math.isfinite(rms):
                lengths[output.output] = max(rms, lengths.get(output.output, 0.0))
    return lengths


def _is_blind(limits: Mapping[str, float], metrics: TensorMetrics, length: float) -> bool:
    """Return whether only a cosine judges an output whose values have this rms at most, and its
    error is larger than the angle explains: that which the limit allows, or that measured.
    """
    wide = vacuous_limits(limits, length)
    if "cosine" not in limits or not limits.keys() - {"cosine"} <= wide:
        return False
    if math.isnan(metrics.nrmse):
        return False
    angles = [math.sqrt(max(0.0, 2 - 2 * cos)) for cos in (limits["cosine"], metrics.cosine)]
    allowed = min(_ALONG * angles[0], max(_ALONG * angles[1], _LEAST_ALONG))
    return not metrics.nrmse <= allowed


def _skipped(
    recipe: Recipe, cases: Sequence[CaseVerdict], omitted: Sequence[OmittedCase]
) -> Iterator[Finding]:
    by_skip = [each.name for each in omitted if each.name in recipe.verify.skip]
    by_budget = [
        each.name
        for each in omitted
        if recipe.verify.budget is not None
        and each.applies
        and each.name not in by_skip
        and not is_of_sweep(each.name)
    ]
    left_out = [*by_skip, *by_budget]
    if not left_out or len(cases) > _FEW * (len(cases) + len(left_out)):
        return
    keys = " and ".join(key for key, names in (("skip", by_skip), ("budget", by_budget)) if names)
    yield Finding(
        _NO_LIMIT,
        f"verify.{keys} leaves {len(cases)} of {len(cases) + len(left_out)} cases, too few to tell"
        " a right model from a wrong one",
        evidence={"skipped": left_out},
        remedy=Remedy(
            "Skip only cases that the model is not meant for, and allow time for the others."
        ),
    )


def _without_skill(recipe: Recipe, target: Target, scored: EvaluationMetrics) -> Iterator[Finding]:
    assert recipe.evaluate is not None
    place = Place(tensor=recipe.evaluate.output or recipe.outputs[0].name)
    allowed = allowed_loss(recipe, target)
    score = f"{scored.metric} {scored.original:.4g}"
    lead = scored.shuffled - scored.original if scored.rises else scored.original - scored.shuffled
    if not scored.rises and allowed >= scored.original > 0:
        yield Finding(
            _NO_SKILL,
            f"max_drop {allowed:g} allows any score: the original has {score}",
            place,
            {"max_drop": allowed, "original": scored.original},
            Remedy("Allow a small part of the original's score."),
        )
    elif not math.isnan(lead) and 0 < lead <= allowed:
        name = "max_rise" if scored.rises else "max_drop"
        yield Finding(
            _NO_SKILL,
            f"{name} {allowed:g} allows what knows nothing: the original has {score}, and its"
            f" decisions dealt to other rows have {scored.shuffled:.4g}",
            place,
            {name: allowed, "original": scored.original, "shuffled": scored.shuffled},
            Remedy("Allow a small part of what the original is better by."),
        )
    elif not math.isnan(lead) and not lead > 0:
        yield Finding(
            _NO_SKILL,
            f"the original has {score}, and so do its decisions dealt to other rows"
            f" ({scored.shuffled:.4g}): the score cannot tell a right model from a wrong one",
            place,
            {"original": scored.original, "shuffled": scored.shuffled},
            Remedy(
                "Use rows on which the original is better than chance, and a metric that tells."
            ),
        )
