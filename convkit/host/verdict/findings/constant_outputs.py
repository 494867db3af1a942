"""Limits so wide that an output which ignores the input meets all of them in every case. Pure."""

import dataclasses
import math
from collections.abc import Sequence

from convkit.host.record.run_record import CaseVerdict, OutputVerdict
from convkit.host.verdict.findings.limits_without_meaning import vacuous_limits
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import is_of_plain_rows
from convkit.protocol.messages.measurements import TensorMetrics
from convkit.protocol.metrics.limits import is_within

_CODE = "N511"
# An output that varies by less, in parts of its largest value, varies by its rounding: 16 units in
# the last place of float32.
_ROUNDING = 2.0**-20
_PART = 0.01


def constant_finding(output: str, cases: Sequence[CaseVerdict]) -> Finding | None:
    """Return N511 if one number in place of all elements of an output would pass in every case.

    The number is zero, the middle of the original's values, or the only value of a case. Rows with
    extreme values (`plain-rows`) do not count, as for limits wider than the output itself, nor do
    cases without a limit. None
    where those are all (N501), for outputs that do not vary or lie along an axis from data, and for
    records of releases that did not measure the span.
    """
    met = [
        each
        for case in cases
        for each in case.outputs
        if each.output == output
        and each.limits
        and not is_of_plain_rows(case.case)
        and each.metrics.elements
    ]
    if not met or not all(_is_known(each.metrics) for each in met):
        return None
    length = max(each.metrics.reference_rms for each in met)
    if all(each.limits.keys() <= vacuous_limits(each.limits, length) for each in met):
        return None
    low = min(each.metrics.reference_low for each in met)
    high = max(each.metrics.reference_high for each in met)
    if not high - low > _ROUNDING * max(abs(low), abs(high)):
        return None
    spans = ((each.metrics.reference_low, each.metrics.reference_high) for each in met)
    only = next((least for least, most in spans if least == most), 0.0)
    numbers = (low + (high - low) / 2, 0.0, only)
    constant = next((one for one in numbers if all(_meets(each, one) for each in met)), None)
    if constant is None:
        return None
    return Finding(
        _CODE,
        f"the number {constant:.3g} in place of every element of {output!r} meets its limits in all"
        f" cases: the original's values are {low:.4g} to {high:.4g}",
        Place(tensor=output),
        {"constant": constant, "low": low, "high": high},
        Remedy(f"Limit its error to a small part of {high - low:.2g}, such as"
               f" max_abs: {_PART * (high - low):.1g}."),
    )  # fmt: skip


def _is_known(metrics: TensorMetrics) -> bool:
    figures = (metrics.reference_low, metrics.reference_high, metrics.reference_mean)
    special = (
        metrics.nan_reference
        or metrics.nan_agreed
        or metrics.inf_reference
        or metrics.mismatch is not None
    )
    return not special and metrics.rows is None and all(map(math.isfinite, figures))


def _meets(output: OutputVerdict, value: float) -> bool:
    """Return whether an output of nothing but `value` is within the limits."""
    return is_within(_metrics_of_constant(output.metrics, value), output.limits)


def _metrics_of_constant(metrics: TensorMetrics, value: float) -> TensorMetrics:
    """Return the metrics of `value` in place of each element, or a bound where the span and the
    mean do not tell: the mean error is at most its root mean square. Of whole numbers, the most
    frequent of k takes at least 1/k of the elements.
    """
    low, high, mean = metrics.reference_low, metrics.reference_high, metrics.reference_mean
    length = metrics.reference_rms
    largest = max(abs(low - value), abs(high - value))
    # mean((r - v)^2) = mean(r^2) - 2 v mean(r) + v^2
    rms = math.sqrt(max(0.0, length**2 - 2 * value * mean + value**2))
    least = 0.0 if low <= 0 <= high else min(abs(low), abs(high))
    ends = {abs(each): abs(each - value) for each in (low, high)}
    if not least:  # at 0, the error is the constant itself
        ends[0.0] = abs(value)
    norms = length * abs(value)
    return dataclasses.replace(
        metrics,
        max_abs=largest,
        max_rel=_largest_part(largest, least, value),
        mean_abs=rms,
        rms=rms,
        nrmse=rms / length if length else math.inf,
        cosine=max(-1.0, min(1.0, mean * value / norms)) if norms else 0.0,
        agreement=1 / (high - low + 1) if low < high else float(value == low),
        nan_candidate=0,
        inf_mismatched=0,
        frontier=tuple(sorted(ends.items())),
        differing_max=metrics.reference_max,
        by_scale=(),
    )


def _largest_part(largest: float, least: float, value: float) -> float:
    """Return a bound on the largest error of `value` in parts of an element."""
    if value == 0:
        return 1.0
    return largest / least if least else math.inf
