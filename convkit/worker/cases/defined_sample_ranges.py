"""Narrows the samples of numbers to values for which a model is defined: one that takes the
logarithm of an input, or divides by it, returns NaN at zero, where the case `extreme` has values.
"""

from collections.abc import Callable, Mapping, Sequence

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
) -> dict[str, Sample]:
    """Return a sample of a narrower range for each input at whose ends the model returns NaN, so
    that it returns none at the ends of all ranges: empty if there is no such input, or no such
    ranges.

    `is_undefined` runs the model and says whether it returns NaN.
    """
    wholes = {spec.name: range_of(sample_for(spec, samples)) for spec in contract.inputs}
    if not any(wholes.values()):
        return {}
    usual = drawn(samples, _EXAMPLE)
    if is_undefined(usual):
        return {}
    at_ends = is_undefined(drawn(samples, _ENDS))
    narrowed: dict[str, Sample] = {}
    for name, ends in wholes.items():
        is_whole = ends is not None and samples[name].kind == "integers"
        # A picture of no width and no height: few elements have one end each.
        if ends is None or not (at_ends or is_whole):
            continue
        low, high = (
            _nearest_defined(
                _towards(end, sum(ends) / 2, is_whole=is_whole), name, usual, is_undefined
            )
            for end in ends
        )
        if (low, high) != ends and low < high:
            narrowed[name] = (
                Sample("integers", (low, high + 1)) if is_whole else Sample("uniform", (low, high))
            )
    return {} if is_undefined(drawn({**samples, **narrowed}, _ENDS)) else narrowed


def range_of(sample: Sample) -> tuple[float, float] | None:
    """Return the smallest and largest number of a sample in the case `extreme`; None for what has
    no such numbers, or some with a meaning of their own.
    """
    if sample.kind == "integers" and not sample.held:
        return sample.numbers[0], sample.numbers[1] - 1
    return ends_of(sample)


def _towards(end: float, middle: float, *, is_whole: bool) -> list[float]:
    """Return an end, and numbers between it and the middle or a little beyond."""
    if not is_whole:
        return [end, *(float(f"{middle + part * (end - middle):.3g}") for part in _PARTS)]
    step = 1 if end < middle else -1
    between = (float(round(middle + part * (end - middle))) for part in _PARTS)
    return list(dict.fromkeys((end, end + step, *between)))


def _nearest_defined(
    tried: Sequence[float], name: str, usual: Feeds, is_undefined: Callable[[Feeds], bool]
) -> float:
    """Return the first of some numbers that the model is defined for; the first if none is."""
    return next(
        (
            number
            for number in tried
            if not is_undefined({**usual, name: np.full_like(usual[name], number)})
        ),
        tried[0],
    )
