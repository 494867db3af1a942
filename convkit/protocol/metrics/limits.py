"""Judges one output's metrics against a tolerance's limits. Every comparison is written so that NaN
fails. Standard library only.
"""

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Literal

from convkit.protocol.messages import RowMetrics, TensorMetrics, UnmatchedRow
from convkit.protocol.metrics.limit_kinds import Limits
from convkit.protocol.metrics.metric_registry import absolute_limit, limits_set

__all__ = [
    "OF_SPREAD",
    "LimitProblem",
    "Limits",
    "breaches",
    "is_same",
    "is_within",
    "overshoot",
    "problems",
    "smallest_alike",
]

# A search aims for 0.7 of the limits on the case that it examines (see `precision.search`): what
# meets that on a case this close to the worst leaves the worst within them, too.
_ALIKE = 0.8
# The part of the spread of an output's values (their standard deviation) that an error may be,
# where a type's own limit is as wide as all of it: a model that returns their mean would meet that.
OF_SPREAD = 0.5


@dataclasses.dataclass(frozen=True)
class LimitProblem:
    """One reason why an output failed, with a `message` for display.

    `dtype`, `shape`: nothing was compared. `empty`: there was nothing to compare. `rows`: rows are
    missing, additional or out of order. `nan`, `infinity`: some elements are NaN or infinite.
    `limit`: a limit was exceeded; only then `limit` names it, with the figure `found` and the value
    `allowed`.
    """

    kind: Literal["dtype", "shape", "empty", "rows", "nan", "infinity", "limit"]
    message: str
    limit: str | None = None
    found: float | None = None
    allowed: float | None = None


def breaches(metrics: TensorMetrics, limits: Limits) -> list[LimitProblem]:
    """Return the limits that an output exceeded, in registry order."""
    found = ((limit, limit.found(metrics)) for limit in limits_set(limits, metrics))
    return [
        LimitProblem(
            kind="limit",
            message=limit.comparison(figure, limit.allowed, passed=False),
            limit=limit.name,
            found=figure,
            allowed=limit.allowed,
        )
        for limit, figure in found
        if not limit.holds(figure)
    ]


def problems(metrics: TensorMetrics, limits: Limits) -> tuple[LimitProblem, ...]:
    """Return all problems with an output; empty if it is within its limits."""
    if metrics.mismatch is not None:
        return (LimitProblem(metrics.mismatch_kind or "shape", metrics.mismatch),)
    if metrics.rows is not None:
        rows = tuple(_row_problems(metrics.rows, _score_error(metrics, limits)))
        return (*rows, *_not_finite(metrics), *breaches(metrics, limits))
    if metrics.elements == 0:
        return (LimitProblem("empty", "no elements to compare"),)
    return (*_not_finite(metrics), *breaches(metrics, limits))


def _score_error(metrics: TensorMetrics, limits: Limits) -> float:
    """Return how far a score may be off: by the limit on each element, or else the share of the
    scores' root mean square that `nrmse` allows.
    """
    if (absolute := absolute_limit(limits)) is not None:
        return absolute
    share = limits.get("nrmse", 0.0) * metrics.reference_rms
    return max(0.0, share)  # NaN: no scores were compared


def _row_problems(rows: RowMetrics, allowed: float) -> Iterator[LimitProblem]:
    """Yield what is wrong with a set of rows. A row whose score may be off by `allowed` may be on
    either side of the threshold, and rows whose scores are that close may be in any order.
    """
    off = [row for row in rows.unmatched if not row.margin <= allowed]
    if off:
        counts = f"{rows.candidate} rows; the original has {rows.reference}, {rows.matched} match"
        listed = ", ".join(map(_row_text, off[:3])) + (", ..." if len(off) > 3 else "")
        yield LimitProblem("rows", f"{counts} ({listed})", found=off[0].margin, allowed=allowed)
    if not rows.disorder <= allowed:
        yield LimitProblem(
            "rows",
            f"the rows are out of order: a later score is {rows.disorder:.3g} higher",
            found=rows.disorder,
            allowed=allowed,
        )


def _row_text(row: UnmatchedRow) -> str:
    place = row.index[0] if len(row.index) == 1 else list(row.index)
    text = f"row {place} is {row.kind}"
    if math.isnan(row.score):
        return text
    if math.isinf(row.margin):
        return f"{text}, with score {row.score:.4g}"
    return f"{text}, with score {row.score:.4g}, {row.margin:.3g} from the threshold"


def _not_finite(metrics: TensorMetrics) -> Iterator[LimitProblem]:
    if metrics.nan_agreed is not None:
        if metrics.lost_nan:
            lost = f"{metrics.lost_nan} numbers where the original passes NaN on from its inputs"
            yield LimitProblem("nan", lost)
        if metrics.nan_candidate:
            made = f"{metrics.nan_candidate} NaN in the converted model where the original has none"
            yield LimitProblem("nan", made)
    elif metrics.nan_candidate or metrics.nan_reference:
        original = metrics.nan_reference or "none"
        yield LimitProblem(
            "nan", f"{metrics.nan_candidate} NaN in the converted model, {original} in the original"
        )
    if metrics.inf_mismatched:
        yield LimitProblem("infinity", f"infinities that do not match: {metrics.inf_mismatched}")


def is_within(metrics: TensorMetrics, limits: Limits) -> bool:
    """Return True if an output meets its limits: it was compared, has no NaN or unmatched
    infinities, and exceeds no limit.
    """
    return not problems(metrics, limits)


def is_same(metrics: TensorMetrics) -> bool:
    """Return True if two tensors are equal as far as metrics show, including NaN and infinities."""
    alike = metrics.nan_reference == metrics.nan_candidate and metrics.inf_mismatched == 0
    alike = alike and (metrics.rows is None or metrics.rows.is_complete)
    return alike and metrics.mismatch is None and (metrics.max_abs == 0.0 or not metrics.frontier)


def overshoot(metrics: TensorMetrics, limits: Limits) -> float:
    """Return the factor by which the error must shrink to meet the limits: at most 1 if it does.

    Infinity if undefined: NaN, unmatched infinities, nothing compared.
    """
    found = problems(metrics, limits)
    if any(problem.kind != "limit" for problem in found):
        return math.inf
    shares = (limit.overshoot(metrics) for limit in limits_set(limits, metrics))
    largest = max(shares, default=0.0)
    return largest if found else min(largest, 1.0)


def smallest_alike(overshoots: Mapping[str, float], elements: Mapping[str, int]) -> str | None:
    """Return the smallest of the cases that are about as far beyond their limits as the worst one:
    what is found on it holds for that one, and running it takes a fraction of the time. None if
    there is no case.
    """
    worst = max(overshoots.values(), default=0.0)
    alike = [name for name, factor in overshoots.items() if not factor < _ALIKE * worst]
    return min(alike, key=lambda name: elements[name], default=None)
