"""How close a run's outputs came to their limits. Pure.

The terminal's table, the HTML report, MLflow and the audit all read these figures, so they agree.
"""

import dataclasses
import math
from collections.abc import Iterable, Iterator

from convkit.host.record.display_text import first_line
from convkit.host.record.run_record import CaseVerdict, OutputVerdict
from convkit.protocol.messages import TensorMetrics
from convkit.protocol.metrics.limits import LimitProblem, problems
from convkit.protocol.metrics.metric_registry import limits_set


@dataclasses.dataclass(frozen=True)
class Worst:
    """The comparison that used the largest share of its limit.

    `share` is 1 at the limit, and infinite if the figure is NaN or nothing was compared. `text` is
    the figure with its limit, or the failure: NaN, a different shape, a refusal to run.
    """

    case: str
    output: str | None
    limit: str | None
    found: float
    allowed: float
    share: float
    passed: bool
    text: str

    def __str__(self) -> str:
        return self.text


def worst_comparison(cases: Iterable[CaseVerdict]) -> Worst | None:
    """Return the comparison closest to its limit, or furthest beyond it; failures precede passes.
    None if there are no comparisons.
    """
    found = list(_comparisons(cases))
    # On ties, the first: cases are ordered from simple to hard, and the simplest failure matters
    # most.
    return max(found, key=lambda worst: (not worst.passed, worst.share), default=None)


def _comparisons(cases: Iterable[CaseVerdict]) -> Iterator[Worst]:
    for case in cases:
        if case.error is not None:
            yield _without_figure(
                case.case, None, f"the runtime failed: {first_line(case.error)}", passed=False
            )
        for output in case.outputs:
            yield worst_of_output(case.case, output)


def _without_figure(case: str, output: str | None, text: str, *, passed: bool) -> Worst:
    share = 0.0 if passed else math.inf
    return Worst(case, output, None, math.nan, math.nan, share, passed, text)


def worst_of_output(case: str, output: OutputVerdict) -> Worst:
    """Return an output's comparison with the largest share of its limit."""
    # A failure that no metric shows: NaN, infinities, a different shape, no elements.
    other = next((each for each in problems_of(output) if each.kind != "limit"), None)
    if other is not None:
        return _without_figure(case, output.output, other.message, passed=output.passed)
    limits = limits_set(output.limits, output.metrics)
    if not limits:
        return _without_figure(case, output.output, "no limit was set", passed=output.passed)
    figures = [(limit.found(output.metrics), limit) for limit in limits]
    # At the limit, rounding can assign the same share to a violated and a satisfied limit.
    found, limit = max(
        figures, key=lambda item: (not item[1].holds(item[0]), item[1].share(output.metrics))
    )
    return Worst(
        case=case,
        output=output.output,
        limit=limit.name,
        found=found,
        allowed=limit.allowed,
        share=limit.share(output.metrics),
        passed=output.passed,
        text=limit.comparison(found, limit.allowed, passed=limit.holds(found)),
    )


def problems_of(output: OutputVerdict) -> tuple[LimitProblem, ...]:
    """Return why an output failed. Older records contain only messages, so there the problems are
    derived again from the recorded limits and metrics.
    """
    if output.passed or output.problems:
        return output.problems
    return problems(output.metrics, output.limits)


def non_finite(metrics: TensorMetrics) -> int:
    """Return the number of elements that could not be compared: NaN on either side, or infinities
    that do not match.
    """
    return metrics.nan_candidate + metrics.nan_reference + metrics.inf_mismatched
