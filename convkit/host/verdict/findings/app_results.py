"""Findings on what an app makes of a built model's outputs: labels, detections and texts."""

from collections.abc import Sequence

from convkit.host.recipe.keys.recipe import Recipe, Target, Tolerance
from convkit.host.recipe.keys.tolerances import decided_by, limits_for
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import ResultMetrics, VerifyResult
from convkit.protocol.metrics.metric_registry import absolute_limit

# Scores this near to each other, in parts of the largest, are a tie if no absolute limit says more.
_NEAR = 0.01


def results_findings(
    recipe: Recipe, target: Target, measured: VerifyResult, override: Tolerance | None
) -> list[Finding]:
    """Return C577 for each output whose results are not the original's: in more rows than
    `agreement` allows, or, without it, in a row that is not a tie.

    A score may be off by its tolerance, so two may change places within twice as much. Without an
    absolute limit, a tie is within a hundredth of the largest score. If the task metric alone
    decides, only `agreement` is judged.
    """
    found = []
    for output in recipe.outputs:
        given = output.postprocess
        cases = [each for each in measured.results if each.output == output.name and each.rows]
        if given is None or not cases:
            continue
        if given.agreement is not None:
            found += _too_few(output.name, cases, given.agreement)
            continue
        if override is None and decided_by(recipe, target) == "task metric":
            continue
        limit = absolute_limit(limits_for(recipe, target, cases[0].scores, override))
        wide = [
            each
            for each in cases
            if each.differing and not each.margin <= _tie(each, measured, limit)
        ]
        if wide:
            found.append(_beyond_ties(output.name, max(wide, key=lambda each: each.margin)))
    return found


def _tie(found: ResultMetrics, measured: VerifyResult, limit: float | None) -> float:
    """Return by how much the original's scores may differ and still change places."""
    if limit is not None:
        return 2 * limit
    largest = [
        output.reference_max
        for case in measured.cases
        if case.case == found.case
        for output in case.outputs
        if output.output == found.scores
    ]
    return _NEAR * max(largest, default=0.0)


def _too_few(output: str, cases: Sequence[ResultMetrics], least: float) -> list[Finding]:
    rows, differing = (sum(getattr(each, key) for each in cases) for key in ("rows", "differing"))
    share = 1 - differing / rows
    if share >= least:
        return []
    worst = max(cases, key=lambda each: each.differing / each.rows)
    return [
        Finding(
            "C577",
            f"{output!r}: {differing} of {rows} rows have a different result from the original's "
            f"({worst.example}); {share:.4g} agree, and agreement requires {least:g}",
            Place(tensor=output, case=worst.case),
            {"rows": rows, "differing": differing, "agreement": share},
            Remedy("Raise the precision of this target, or accept less agreement."),
        )
    ]


def _beyond_ties(output: str, worst: ResultMetrics) -> Finding:
    return Finding(
        "C577",
        f"{output!r}: {worst.differing} of {worst.rows} rows have a different result from the "
        f"original's ({worst.example}). The scores would have to move by {worst.margin:.3g}, more"
        " than their tolerance explains",
        Place(tensor=output, case=worst.case),
        {"rows": worst.rows, "differing": worst.differing, "margin": worst.margin},
        Remedy("Raise the precision of this target, or write the agreement that is enough."),
    )
