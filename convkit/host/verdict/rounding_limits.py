"""Limits that follow from a type and from what rounding to it makes of the original."""

from collections.abc import Sequence

from convkit.host.recipe.keys.low_precision_types import low_type
from convkit.host.recipe.keys.recipe import Target
from convkit.host.verdict.findings.unreachable_limits import MOST_ROUNDING, ROOM
from convkit.protocol.messages import RoundedOutput

# Where rounding leaves fewer labels than this, the type is wrong for them: no limit is right.
_LEAST_AGREEMENT = 0.75
# Quantizations that keep activations in float32.
_WEIGHTS = "weights"


def widened(
    limits: dict[str, float], target: Target, output: str, rounded: Sequence[RoundedOutput]
) -> dict[str, float]:
    """Return the limits that a type gives an output, as wide as twice what rounding to the type
    makes of the original itself: an error (nrmse) of fractions, a share of labels that differ
    (agreement). Never narrower, and never for an output of which rounding leaves little.
    """
    quantized = target.quantization
    activations = quantized is not None and _WEIGHTS not in quantized.quantize
    own = [
        each.metrics
        for each in rounded
        if each.type == low_type(target)
        and each.metrics.output == output
        and each.activations == (activations and each.type == "int8")
    ]
    found = dict(limits)
    if "nrmse" in limits:
        error = max((each.nrmse for each in own), default=0.0)
        if error <= MOST_ROUNDING:
            found["nrmse"] = max(limits["nrmse"], float(f"{ROOM * error:.2g}"))
    if "agreement" in limits:
        agreement = min((each.agreement for each in own), default=1.0)
        if agreement >= _LEAST_AGREEMENT:
            found["agreement"] = min(limits["agreement"], 1 - ROOM * (1 - agreement))
    return found
