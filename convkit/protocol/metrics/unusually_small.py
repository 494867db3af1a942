"""Relative errors of outputs whose values in a case do not show how large they usually are: they
are few, and one score may be near zero by chance, or they are zero but for rounding. Standard
library only.
"""

import math
import statistics
from collections.abc import Iterable

from convkit.protocol.metrics.limit_kinds import Limits
from convkit.protocol.metrics.near_zero_outputs import rounding_noise

# Fewer values do not show how large an output's values are.
FEW_VALUES = 16
# Cases whose values are not the usual ones, or that are one of many alike.
_UNUSUAL = frozenset({"extreme", "values", "decisions", "plain-rows", "sweep"})


def usual_magnitudes(found: Iterable[tuple[str, str, float]]) -> dict[str, float]:
    """Return how large each output's values usually are: the median of their root mean squares
    over the usual cases. `found` has cases, outputs and the root mean square of each.
    """
    known: dict[str, list[float]] = {}
    for case, output, rms in found:
        if case.partition(":")[0] not in _UNUSUAL and math.isfinite(rms):
            known.setdefault(output, []).append(rms)
    return {output: statistics.median(each) for output, each in known.items()}


def for_small(limits: Limits, elements: int, rms: float, usual: float) -> Limits:
    """Return the limits on an output with so many values of this root mean square in a case. If
    they are few and smaller than usual, or no larger than the rounding noise of usual ones, their
    error (nrmse) is judged in parts of the usual.
    """
    if "nrmse" not in limits or not elements or not 0 < rms < usual:
        return limits
    if not (elements < FEW_VALUES or rms <= rounding_noise(usual)):
        return limits
    return {**limits, "nrmse": limits["nrmse"] * usual / rms}
