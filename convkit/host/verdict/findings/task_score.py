"""Judges the score of a target on the user's task. Pure."""

import math
from collections.abc import Sequence

from convkit.host.recipe.keys.recipe import Recipe, Target
from convkit.host.recipe.keys.tolerances import limits_by_type
from convkit.host.record.run_record import CaseVerdict
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import EvaluationMetrics
from convkit.protocol.metrics.limits import problems

_DROPPED = "N701"
UNDECIDED = "N702"
_NO_SCORE = "N703"


def evaluation_findings(
    recipe: Recipe, target: Target, scored: EvaluationMetrics | None, cases: Sequence[CaseVerdict]
) -> list[Finding]:
    """Return what the score says: N701 if it dropped by more than the recipe allows, beyond the
    sampling noise; N702 if the rows cannot tell; N703 without a score.

    A few rows decided alike cannot tell how the next is decided. The outputs can: where those of
    all `cases` are within the limits that they would have without a task, nothing is undecided.
    """
    if recipe.evaluate is None:
        return []
    allowed = allowed_loss(recipe, target)
    by = f"lower by more than {allowed:g}"
    if recipe.evaluate.rises:
        relative = scored is None or scored.relative
        by = f"higher by more than {_percent(allowed) if relative else format(allowed, 'g')}"
    why = _without_score(scored)
    if scored is None or why is not None:
        return [
            Finding(
                _NO_SCORE,
                f"{recipe.evaluate.metric}: no score: {why}",
                remedy=Remedy("Fix the other findings first, or the rows that the model refuses."),
            )
        ]
    if scored.low > allowed or not math.isfinite(scored.candidate):
        return [_finding(_DROPPED, f"is {by}", recipe, scored, allowed)]
    if scored.high <= allowed or (scored.disagreed == 0 and _outputs_agree(recipe, target, cases)):
        return []
    what = f"may be {by}, or not: the rows cannot tell"
    return [_finding(UNDECIDED, what, recipe, scored, allowed)]


def _outputs_agree(recipe: Recipe, target: Target, cases: Sequence[CaseVerdict]) -> bool:
    """Return whether the outputs of all cases are within their limits, whatever decides."""
    return bool(cases) and all(
        not problems(output.metrics, limits_by_type(recipe, target, output.output, None))
        for case in cases
        for output in case.outputs
    )


def _without_score(scored: EvaluationMetrics | None) -> str | None:
    """Return why there is nothing to judge; None if there is."""
    if scored is None:
        return "the runtime refused the model"
    if scored.error is None and not math.isfinite(scored.original):
        return f"the original's own score is {scored.original}"
    return scored.error


def allowed_loss(recipe: Recipe, target: Target) -> float:
    """Return how much worse than the original's a target's score may be: the largest drop or
    rise, or the largest share by which a perplexity rises.
    """
    assert recipe.evaluate is not None
    key = "max_rise" if recipe.evaluate.rises else "max_drop"
    own = getattr(target, key)
    return float(getattr(recipe.evaluate, key) if own is None else own)


def passing_text(recipe: Recipe, target: Target, scored: EvaluationMetrics | None) -> str | None:
    """Return a target's score in words, with what it was allowed to lose; None if it has none."""
    return None if scored is None else evaluation_text(scored, allowed_loss(recipe, target))


def evaluation_text(scored: EvaluationMetrics, allowed: float | None = None) -> str:
    """Return a score in words: 'accuracy 0.91, original 0.93 (drop 0.02 of 0.05 allowed, 95 %
    between 0.01 and 0.03, 400 rows)'.
    """
    share = scored.rises and scored.relative
    what = "rises by" if share else "rise" if scored.rises else "drop"

    def figure(value: float) -> str:
        return _percent(value) if share else f"{value:.2g}"

    limit = "" if allowed is None else f" of {figure(allowed)} allowed"
    return (
        f"{scored.metric} {scored.candidate:.4g}, original {scored.original:.4g} ({what}"
        f" {figure(scored.drop)}{limit}, 95 % between {figure(scored.low)} and"
        f" {figure(scored.high)}, {scored.rows} rows)"
    )


def _percent(share: float) -> str:
    return f"{share * 100:.3g} %"


def _finding(
    code: str, what: str, recipe: Recipe, scored: EvaluationMetrics, allowed: float
) -> Finding:
    assert recipe.evaluate is not None
    listed = [
        f"row {each.row}: {each.candidate}, original {each.original}, label {each.label}"
        for each in scored.disagreements
    ]
    return Finding(
        code,
        f"the task's score {what}: {evaluation_text(scored)}",
        Place(tensor=recipe.evaluate.output or recipe.outputs[0].name),
        {
            "max_rise" if recipe.evaluate.rises else "max_drop": allowed,
            "drop": scored.drop,
            "low": scored.low,
            "high": scored.high,
            "disagreed": scored.disagreed,
            "disagreements": listed,
        },
        Remedy(
            "Keep more modules in float32, or choose a higher precision."
            if code == _DROPPED
            else "Add rows to evaluate.data: four times as many halve the interval."
        ),
    )
