"""Narrows the samples of fractions to values for which a model is defined: one that takes the
logarithm of an input returns NaN at zero, where the case `extreme` has values.
"""

from collections.abc import Callable, Mapping

import numpy as np

from convkit.protocol.contract import Contract
from convkit.protocol.messages import Sample
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.values.sampled_values import Draw, ends_of, sample_for

# Returns the inputs that some samples draw.
Drawing = Callable[[Mapping[str, Sample], Draw], Feeds]

_EXAMPLE, _ENDS = Draw("example"), Draw("extreme", extreme=True)
# How much of the way from the middle of a range to an end where the model is undefined is tried;
# below zero, values on the other side of the middle.
_PARTS = (0.99, 0.95, 0.9, 0.75, 0.5, 0.25, 0.1, 0.01, -0.01, -0.1)


def defined_ranges(
    contract: Contract,
    samples: Mapping[str, Sample],
    drawn: Drawing,
    is_undefined: Callable[[Feeds], bool],
) -> dict[str, tuple[float, float]]:
    """Return a range for each input at whose ends the model returns NaN, so that it returns none at
    the ends of all ranges: empty if there is no such input, or no such ranges.

    `is_undefined` runs the model and says whether it returns NaN.
    """
    wholes = {spec.name: ends_of(sample_for(spec, samples)) for spec in contract.inputs}
    if not any(wholes.values()):
        return {}
    usual = drawn(samples, _EXAMPLE)
    if not is_undefined(drawn(samples, _ENDS)) or is_undefined(usual):
        return {}
    narrowed: dict[str, tuple[float, float]] = {}
    for name, ends in wholes.items():
        if ends is None:
            continue
        low, high = (
            _nearest_defined(end, sum(ends) / 2, name, usual, is_undefined) for end in ends
        )
        if (low, high) != ends and low < high:
            narrowed[name] = (low, high)
    changed = {name: Sample("uniform", ends) for name, ends in narrowed.items()}
    return {} if is_undefined(drawn({**samples, **changed}, _ENDS)) else narrowed


def _nearest_defined(
    end: float, middle: float, name: str, usual: Feeds, is_undefined: Callable[[Feeds], bool]
) -> float:
    """Return the number nearest to an end that the model is defined for; the end if none is."""
    tried = (end, *(float(f"{middle + part * (end - middle):.3g}") for part in _PARTS))
    return next(
        (
            number
            for number in tried
            if not is_undefined({**usual, name: np.full_like(usual[name], number)})
        ),
        end,
    )
