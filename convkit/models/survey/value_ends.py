"""Narrows the samples of fractions to values for which a model is defined: one that takes the
logarithm of an input returns NaN at zero, where verification's extreme values are.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np

from convkit.cases.samples import Draw, ends_of
from convkit.models.survey.start import at_full_length
from convkit.models.survey.trials import Trials, has_nan
from convkit.models.survey.wording import undefined_end
from convkit.tensors import TensorSpec
from convkit.worker.protocol import Sample, SurveyResult

_EXAMPLE, _ENDS = Draw("example"), Draw("extreme", extreme=True)
# How much of the way from the middle of a range to an end where the model is undefined is tried;
# below zero, values on the other side of the middle.
_PARTS = (0.99, 0.95, 0.9, 0.75, 0.5, 0.25, 0.1, 0.01, -0.01, -0.1)


def within_domains(found: SurveyResult, trials: Trials) -> SurveyResult:
    """Return a result whose numbers keep off the ends of their ranges at which the model returns
    NaN, if it returns none in between, and none at the ends that are left.
    """
    contract = found.contract
    sizes = {axis.name: axis.min for axis in contract.axes}

    def feeds(samples: Mapping[str, Sample], draw: Draw) -> dict[str, np.ndarray]:
        given = at_full_length(contract.inputs, samples, sizes)
        return trials.drawn(contract.inputs, given, sizes, draw)

    def is_undefined(values: Mapping[str, np.ndarray]) -> bool:
        returned = trials.values(values)
        return returned is not None and has_nan(returned)

    ranges = {spec.name: ends_of(found.samples[spec.name]) for spec in contract.inputs}
    if trials.is_over or not any(ranges.values()):
        return found
    usual = feeds(found.samples, _EXAMPLE)
    if not is_undefined(feeds(found.samples, _ENDS)) or is_undefined(usual):
        return found
    samples, notes = dict(found.samples), []
    for spec in contract.inputs:
        if (ends := ranges[spec.name]) is None:
            continue
        middle = sum(ends) / 2
        kept = []
        for end in ends:
            tried = (end, *(float(f"{middle + part * (end - middle):.3g}") for part in _PARTS))
            defined = (each for each in tried if not is_undefined(_with(usual, spec, each)))
            kept.append(next(defined, end))
        if tuple(kept) != ends:
            samples[spec.name] = Sample("uniform", tuple(kept))
            notes.append(undefined_end(spec.name, ends, (kept[0], kept[1])))
    if is_undefined(feeds(samples, _ENDS)):
        return found
    return dataclasses.replace(found, samples=samples, notes=(*found.notes, *notes))


def _with(
    feeds: Mapping[str, np.ndarray], spec: TensorSpec, number: float
) -> dict[str, np.ndarray]:
    return {**feeds, spec.name: np.full_like(feeds[spec.name], number)}
