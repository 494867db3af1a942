"""Outputs that are almost zero in one case: rounding noise has no direction."""

from collections.abc import Iterable, Mapping

from convkit.protocol.messages import CaseMetrics, TensorMetrics
from convkit.protocol.metrics.limit_kinds import float32_unit
from convkit.protocol.metrics.metric_registry import METRICS

# An output computed in float32 is uncertain by more units in the last place of its largest values
# than this: a sigmoid near 1, a sum of large terms that cancel.
_ROUNDING_UNITS = 10
# Limits whose figures are relative to the output's values. `agreement` counts equal elements.
_RELATIVE = {name for name, each in METRICS.items() if each.unit == "ratio"} - {"agreement"}
# Cases that reach values which the model does not meet otherwise.
_UNUSUAL = ("extreme", "values", "decisions", "plain-rows")


def largest_values(cases: Iterable[CaseMetrics]) -> dict[str, float]:
    """Return the original's largest magnitude per output, over all cases with usual values."""
    return largest_magnitudes(
        (case.case, output.output, output.reference_max)
        for case in cases
        for output in case.outputs
    )


def largest_magnitudes(found: Iterable[tuple[str, str, float]]) -> dict[str, float]:
    """Return the largest magnitude per output over all cases with usual values. `found` has cases,
    outputs and the largest magnitude of each.
    """
    largest: dict[str, float] = {}
    for case, output, magnitude in found:
        if case.partition(":")[0] not in _UNUSUAL:
            largest[output] = max(largest.get(output, 0.0), magnitude)
    return largest


def rounding_noise(largest: float) -> float:
    """Return how large the rounding errors of values of this magnitude may be in float32."""
    return _ROUNDING_UNITS * float32_unit(largest)


def meaningful(
    limits: dict[str, float], metrics: TensorMetrics, largest: Mapping[str, float]
) -> dict[str, float]:
    """Return the limits that an output is judged by in one case: without those relative to the
    output (cosine, nrmse) if both the output and its error are within the rounding of its largest
    values elsewhere. All of them if no other limit would remain.
    """
    rounding = rounding_noise(largest.get(metrics.output, 0.0))
    if not (metrics.max_abs <= rounding and metrics.reference_rms <= rounding):
        return limits
    return {name: value for name, value in limits.items() if name not in _RELATIVE} or limits
