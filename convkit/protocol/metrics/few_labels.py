"""Labels of low precision of which a case has few: one that differs is a large share of them, so
how many differ shows in all cases together. Standard library only.
"""

import math
from collections.abc import Iterable, Mapping

from convkit.protocol.messages import TensorMetrics
from convkit.protocol.metrics.limit_kinds import Limits
from convkit.protocol.metrics.unusually_small import FEW_VALUES

# Standard deviations of a count (binomial) within which that of all cases may be off the share that
# is allowed, and that of a single case off the share of all.
_OF_ALL, _OF_ONE = 2, 3


def shares_of_few(found: Iterable[TensorMetrics]) -> dict[str, tuple[float, int]]:
    """Return of each output how many labels differ in the cases that have few, and how many labels
    these are. What the model's own scores choose does not differ.
    """
    counted: dict[str, tuple[float, int]] = {}
    for each in found:
        if 0 < each.elements < FEW_VALUES and each.mismatch is None:
            differing, count = counted.get(each.output, (0.0, 0))
            right = min(1.0, each.agreement + each.scored)
            counted[each.output] = (differing + (1 - right) * each.elements, count + each.elements)
    return counted


def most_of_few(agreement: float, count: int) -> float:
    """Return how many of so many labels may differ if a share of them has to agree, and two
    standard deviations of that count more.
    """
    return (1 - agreement) * count + _OF_ALL * math.sqrt(agreement * (1 - agreement) * count)


def for_few(limits: Limits, metrics: TensorMetrics, few: Mapping[str, tuple[float, int]]) -> Limits:
    """Return the limits on an output's labels in a case. If they are few, and enough agree in all
    cases of few together, as many may differ as three standard deviations of their count allow,
    and one at least.
    """
    agreement = limits.get("agreement", 1.0)
    differing, count = few.get(metrics.output, (0.0, 0))
    if not (0 < metrics.elements < FEW_VALUES and 0 < agreement < 1):
        return limits
    if not differing <= most_of_few(agreement, count):
        return limits
    chance = _OF_ONE * math.sqrt(agreement * (1 - agreement) / metrics.elements)
    least = min(agreement - chance, 1 - 1 / metrics.elements)
    return {**limits, "agreement": max(0.0, least)}
