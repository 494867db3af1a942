"""Which of the cases that failed are searched for a cause."""

import math
from collections.abc import Mapping, Sequence

from convkit.host.record.run_record import CaseVerdict, Verification
from convkit.protocol.messages import is_step, is_usual
from convkit.protocol.metrics.limits import overshoot, smallest_alike

# Cases with values at the ends of every range, and next to those that the model compares with.
_EXTREME = ("extreme", "values", "decisions", "plain-rows")
# A scale and an offset fit any two values, and three by chance.
_ENOUGH_VALUES = 4
# Elements of an output up to which a case takes no longer than one of a single row.
_SMALL = 4096


def unusual_cases(verification: Verification) -> tuple[str, ...]:
    """Return the cases that failed in float32, if all have values or masks that the model rarely
    meets and every output is finite where the original's is; otherwise none.
    """
    off = [case for case in verification.cases if not case.passed]
    return tuple(case.case for case in off) if all(map(_may_be_rounding, off)) else ()


def _may_be_rounding(case: CaseVerdict) -> bool:
    """Say whether a case may fail by rounding alone: its values or masks are unusual."""
    outputs = [output.metrics for output in case.outputs]
    return (
        case.error is None
        and not (is_usual(case.case) and is_usual(case.case.partition(":")[0]))
        and all(each.mismatch is None and math.isfinite(each.max_abs) for each in outputs)
    )


def most_informative_case(cases: Sequence[CaseVerdict]) -> str | None:
    """Return the first case whose failing outputs have enough values each to tell explanations
    apart, otherwise the usual one with the most; None if there is no case.

    A classifier's single score of a single row fits anything that has one free number. So does a
    whole row where each has a number of its own: a small case of several rows is preferred.
    """

    def values(case: CaseVerdict) -> int:
        return min((each.metrics.elements for each in case.outputs if not each.passed), default=0)

    telling = [case for case in cases if values(case) >= _ENOUGH_VALUES]
    rows = [
        case
        for case in telling
        if is_usual(case.case) and 1 not in case.sizes.values() and _largest(case) <= _SMALL
    ]
    if (found := next(iter((*rows, *telling)), None)) is None:
        usual = [case for case in cases if is_usual(case.case)] or cases
        found = max(usual, key=values, default=None)
    return found.case if found is not None else None


def _largest(case: CaseVerdict) -> int:
    return max((output.metrics.elements for output in case.outputs), default=0)


def worst_case(
    cases: Sequence[CaseVerdict], limits: Mapping[str, Mapping[str, float]]
) -> str | None:
    """Return the failing case that is furthest beyond its limits while every output is finite, or
    one that is about as far and smaller; one with extreme values only if no other failed. None if
    there is none.
    """
    factors = {
        case.case: max(
            (overshoot(o.metrics, limits.get(o.output, {})) for o in case.outputs), default=math.inf
        )
        for case in cases
        if not case.passed and case.error is None and not is_step(case.case)
    }
    finite = {name: factor for name, factor in factors.items() if 1 < factor < math.inf}
    usual = {n: factor for n, factor in finite.items() if n.partition(":")[0] not in _EXTREME}
    elements = {case.case: _largest(case) for case in cases}
    return smallest_alike(usual or finite, elements)
