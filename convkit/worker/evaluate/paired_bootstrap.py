"""Compares two models' decisions on the same rows, with a paired bootstrap interval.

Both models are scored on the same resamples of the rows, so that what makes a row hard for both
cancels out (Koehn, Statistical Significance Tests for Machine Translation Evaluation, 2004).
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from convkit.protocol.messages import Disagreement, EvaluationMetrics
from convkit.worker.evaluate.task_scores import Scorer

_RESAMPLES = 500
_LISTED = 10


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
    # A resample of equal labels has no correlation: it says nothing about either model.
    usable = [drop for drop in drops if math.isfinite(drop)]
    low, high = (
        np.quantile(usable, [0.025, 0.975])
        if len(usable) > _RESAMPLES / 2
        else (math.nan, math.nan)
    )
    ones, others = ([scorer.shown(each) for each in side] for side in (original, candidate))
    apart = [row for row in range(count) if not _same(ones[row], others[row])]
    apart.sort(key=lambda row: -_distance(ones[row], others[row]))
    listed = tuple(
        Disagreement(row, _text(labels[row]), _text(ones[row]), _text(others[row]))
        for row in apart[:_LISTED]
    )
    drop = scorer.loss(base, found)
    interval = float(low), float(high)
    return EvaluationMetrics(
        metric,
        count,
        base,
        found,
        drop,
        *interval,
        len(apart),
        listed,
        rises=scorer.rises,
        relative=scorer.relative,
    )


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
