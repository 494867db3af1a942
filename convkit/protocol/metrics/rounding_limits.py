"""Limits that follow from a type, from what rounding to it makes of the original, and from how far
the original's values spread. Standard library only.
"""

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

from convkit.protocol.messages import RoundedOutput, TensorMetrics
from convkit.protocol.metrics.few_labels import shares_of_few
from convkit.protocol.metrics.limits import OF_SPREAD
from convkit.protocol.metrics.unusually_small import FEW_VALUES

# What a conversion may add to what rounding its weights and inputs makes of the original.
ROOM = 2
# An error that no limit should allow, but for types that usually leave it.
MOST_ROUNDING = 0.25
# Where rounding leaves fewer labels than this, the type is wrong for them: no limit is right.
_LEAST_AGREEMENT = 0.75
# The share of labels that may differ at most because fractions may be further off than rounding to
# the type leaves them: a type's limit on fractions is many roundings wide. More of them where the
# type allows fractions a larger error, as a search for a precision does.
_BY_FRACTIONS = 0.1


@dataclasses.dataclass(frozen=True)
class Rounding:
    """How a target computes: in a type, with or without activations in it; `usual` is the error
    (nrmse) that the type is allowed, and `searched` says that a search decides what is in it.
    """

    low: str | None
    activations: bool
    usual: float
    searched: bool = False


def fitted(
    limits: Mapping[str, float],
    rounding: Rounding,
    output: str,
    rounded: Sequence[RoundedOutput],
    fractions: Collection[str] = (),
) -> dict[str, float]:
    """Return the limits that a type gives an output, as wide as twice what rounding to the type
    makes of the original itself: an error (nrmse) of fractions, a share of labels that differ
    (agreement). Never for an output of which rounding leaves little, but as many labels as a search
    for what stays in float32 allows; and narrower only if a constant would meet the type's limit,
    and none meets the narrower one.

    The share of labels that differ grows with the error of what they are made of. So they may
    differ as often as it takes for the outputs that are `fractions` to be as far off as their type
    allows. A few labels of which none differs do not show that none ever does (Laplace's rule of
    succession).
    """
    of_type = [
        each.metrics
        for each in rounded
        if each.type == rounding.low
        and each.activations == (rounding.activations and each.type == "int8")
    ]
    own = [each for each in of_type if each.output == output]
    found = dict(limits)
    if "nrmse" in limits:
        error = max((each.nrmse for each in own), default=0.0)
        allowed = float(f"{ROOM * error:.2g}") if error <= MOST_ROUNDING else 0.0
        found["nrmse"] = max(limits["nrmse"], allowed)
        spread = _spread(own)
        narrow = max(float(f"{OF_SPREAD * spread:.2g}"), allowed)
        if narrow < spread <= limits["nrmse"]:
            found["nrmse"] = narrow
    if "agreement" in limits:
        agreement = _agreement(own)
        error = max((each.nrmse for each in of_type if each.output in fractions), default=0.0)
        usual = rounding.usual
        if agreement >= _LEAST_AGREEMENT and (own or not rounding.searched):
            room = usual / error if error > 0 else 0.0
            by_fractions = min(room * _share_of_differing(own), max(usual, _BY_FRACTIONS))
            differing = max(ROOM * (1 - agreement), by_fractions)
            found["agreement"] = min(limits["agreement"], 1 - differing)
        elif rounding.searched:  # what is rounded then is only a part, as the search judged
            found["agreement"] = min(limits["agreement"], 1 - usual)
    return found


def with_chance(limits: dict[str, float], metrics: TensorMetrics) -> dict[str, float]:
    """Return limits with the share of labels that may differ of few of them: by two standard
    deviations of a count (binomial) more, but not so many that the type is wrong for them.
    """
    agreement = limits.get("agreement", 1.0)
    if not _LEAST_AGREEMENT < agreement < 1 or not metrics.elements:
        return limits
    chance = 2 * math.sqrt(agreement * (1 - agreement) / metrics.elements)
    return limits | {"agreement": max(agreement - chance, _LEAST_AGREEMENT)}


def _agreement(rounded: Sequence[TensorMetrics]) -> float:
    """Return the smallest share of an output's labels that agree in a case; cases with few labels
    count as one.
    """
    shares = [each.agreement for each in rounded if each.elements >= FEW_VALUES]
    few = [1 - differing / labels for differing, labels in shares_of_few(rounded).values()]
    return min([*shares, *few], default=1.0)


def _share_of_differing(rounded: Sequence[TensorMetrics]) -> float:
    """Return how many labels differ, and one more that could have, of all of an output's."""
    labels = sum(each.elements for each in rounded)
    differing = sum((1 - each.agreement) * each.elements for each in rounded)
    return (differing + 1) / (labels + 1)


def _spread(rounded: Sequence[TensorMetrics]) -> float:
    """Return the standard deviation of the original's values, in parts of their root mean square:
    the largest within a case, or that over all cases, in each of which there may be one value.
    Infinite if it is not known.
    """
    known = [
        (each.elements, each.reference_mean, each.reference_rms**2)
        for each in rounded
        if each.reference_rms > 0 and math.isfinite(each.reference_mean)
    ]
    if not known or len(known) < len(rounded):
        return math.inf
    count = sum(elements for elements, _, _ in known)
    mean = sum(elements * mean for elements, mean, _ in known) / count
    square = sum(elements * square for elements, _, square in known) / count
    pairs = [(mean, square), *((mean, square) for _, mean, square in known)]
    return max(math.sqrt(max(square - mean * mean, 0.0) / square) for mean, square in pairs)
