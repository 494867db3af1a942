"""Compares two models' decisions on the same rows, with a paired bootstrap interval.

Both models are scored on the same resamples of the rows, so that what makes a row hard for both
cancels out (Koehn, Statistical Significance Tests for Machine Translation Evaluation, 2004).

Resamples of few rows vary too little, so their quantiles are expanded (Hesterberg, What Teachers
Should Know about the Bootstrap, 2014, section 5.3). And no resample has what no row has: where two
models decide alike in all of four rows, every resample says that they are the same. So the interval
also covers the rows that may be decided differently beyond those that were, by the exact bound on a
share (Clopper and Pearson, The Use of Confidence or Fiducial Limits, 1934). Scores of rows that are
numbers show by themselves how much they vary.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from convkit.protocol.messages import Disagreement, EvaluationMetrics
from convkit.worker.evaluate.task_scores import Scorer

_RESAMPLES = 500
_LISTED = 10
_DEALS = 20  # of which the best is what chance reaches in one of 20
_TAIL = 0.025  # on each side of an interval of 95 %


def compare_decisions(
    metric: str,
    scorer: Scorer,
    original: Sequence[Any],
    candidate: Sequence[Any],
    labels: Sequence[Any],
) -> EvaluationMetrics:
    """Return the scores of both models, the drop with its interval, and rows that differ.

    The interval is NaN if a score is: no limit holds then.
    """
    count = len(labels)
    scores = scorer.scores(original, labels), scorer.scores(candidate, labels)
    base, found = (score(range(count)) for score in scores)
    generator = np.random.default_rng(0)
    drops = []
    for _ in range(_RESAMPLES):
        rows = generator.integers(0, count, count).tolist()
        drops.append(scorer.loss(*(score(rows) for score in scores)))
    ones, others = ([scorer.shown(each) for each in side] for side in (original, candidate))
    apart = [row for row in range(count) if not _same(ones[row], others[row])]
    apart.sort(key=lambda row: -_distance(ones[row], others[row]))
    listed = tuple(
        Disagreement(row, _text(labels[row]), _text(ones[row]), _text(others[row]))
        for row in apart[:_LISTED]
    )
    drop = scorer.loss(base, found)
    return EvaluationMetrics(
        metric,
        count,
        base,
        found,
        drop,
        *_interval(drop, drops, None if _are_numbers(ones) else len(apart), count),
        len(apart),
        listed,
        rises=scorer.rises,
        relative=scorer.relative,
        shuffled=_shuffled(scorer, original, labels),
    )


def _shuffled(scorer: Scorer, original: Sequence[Any], labels: Sequence[Any]) -> float:
    """Return the best score of decisions dealt to other rows; NaN where labels play no part."""
    if scorer.without_labels:
        return math.nan
    generator = np.random.default_rng(1)
    scores = [
        scorer.score([original[row] for row in generator.permutation(len(labels))], labels)
        for _ in range(_DEALS)
    ]
    return min(scores) if scorer.rises else max(scores)


def _interval(
    drop: float, resampled: Sequence[float], apart: int | None, count: int
) -> tuple[float, float]:
    """Return the interval of 95 % for a drop over `count` rows, of which `apart` were decided
    differently; None for rows with scores instead of decisions.
    """
    # A resample of equal labels has no correlation: it says nothing about either model.
    usable = [each for each in resampled if math.isfinite(each)]
    if not math.isfinite(drop) or len(usable) <= len(resampled) / 2:
        return math.nan, math.nan
    tail = _expanded_tail(count)
    low, high = np.quantile(usable, [tail, 1 - tail])
    unseen = 0.0 if apart is None else _doubt_of_share(apart, count)
    return min(float(low), drop - unseen), max(float(high), drop + unseen)


def _are_numbers(decisions: Sequence[Any]) -> bool:
    return all(isinstance(each, float | np.floating | np.ndarray) for each in decisions)


def _expanded_tail(count: int) -> float:
    """Return the quantile of resampled means whose interval is as wide as Student's."""
    from scipy.stats import norm, t

    if count < 2:
        return 0.0
    widened = math.sqrt(count / (count - 1)) * t.ppf(1 - _TAIL, count - 1)
    return float(norm.sf(widened))


def _doubt_of_share(found: int, count: int) -> float:
    """Return how far the true share may be from `found` of `count` rows."""
    from scipy.stats import beta

    lowest = 0.0 if found == 0 else float(beta.ppf(_TAIL, found, count - found + 1))
    highest = 1.0 if found == count else float(beta.ppf(1 - _TAIL, found + 1, count - found))
    return max(found / count - lowest, highest - found / count)


def _same(one: Any, other: Any) -> bool:  # noqa: ANN401 - decisions of any metric
    if isinstance(one, float):
        return _distance(one, other) <= 0.01  # similarities of two models never agree exactly
    return bool(np.array_equal(np.asarray(one), np.asarray(other)))


def _distance(one: Any, other: Any) -> float:  # noqa: ANN401 - decisions of any metric
    if isinstance(one, np.ndarray):
        size = float(np.linalg.norm(one))
        distance = float(np.linalg.norm(one - other)) / size if size else 1.0
    else:
        distance = abs(one - other) if isinstance(one, float) else 1.0
    return distance if math.isfinite(distance) else math.inf


def _text(value: Any) -> str:  # noqa: ANN401 - decisions of any metric
    if isinstance(value, float):
        return f"{value:.4g}"
    text = str(np.asarray(value).tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= 80 else f"{text[:79]}\N{HORIZONTAL ELLIPSIS}"
