"""Judges the score of a target on the user's task. Pure."""

import math

from convkit.findings.model import Finding, Place, Remedy
from convkit.recipe.models import Recipe, Target
from convkit.worker.protocol import EvaluationMetrics

_DROPPED = "N701"
UNDECIDED = "N702"
_NO_SCORE = "N703"


def evaluation_findings(
    recipe: Recipe, target: Target, scored: EvaluationMetrics | None
) -> list[Finding]:
    """Return what the score says: N701 if it dropped by more than the recipe allows, beyond the
    sampling noise; N702 if the rows cannot tell; N703 without a score.
    """
    if recipe.evaluate is None:
        return []
    allowed = max_drop(recipe, target)
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
        return [_finding(_DROPPED, f"is lower by more than {allowed:g}", recipe, scored, allowed)]
    if scored.high <= allowed:
        return []
    what = f"may be lower by more than {allowed:g}, or not: the rows cannot tell"
    return [_finding(UNDECIDED, what, recipe, scored, allowed)]


def _without_score(scored: EvaluationMetrics | None) -> str | None:
    """Return why there is nothing to judge; None if there is."""
    if scored is None:
        return "the runtime refused the model"
    if scored.error is None and not math.isfinite(scored.original):
        return f"the original's own score is {scored.original}"
    return scored.error


def max_drop(recipe: Recipe, target: Target) -> float:
    """Return the largest drop of the score that a target may have."""
    assert recipe.evaluate is not None
    return recipe.evaluate.max_drop if target.max_drop is None else target.max_drop


def evaluation_text(scored: EvaluationMetrics) -> str:
    """Return a score in words: 'accuracy 0.91, original 0.93 (drop 0.02, 95 % 0.01 to 0.03)'."""
    return (
        f"{scored.metric} {scored.candidate:.4g}, original {scored.original:.4g} (drop"
        f" {scored.drop:.2g}, 95 % between {scored.low:.2g} and {scored.high:.2g}, {scored.rows}"
        " rows)"
    )


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
            "max_drop": allowed,
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
