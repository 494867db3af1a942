"""Narrows drafted samples of numbers to values for which a file or module is defined."""

import dataclasses
from collections.abc import Mapping

from convkit.protocol.messages import Sample, SurveyResult
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.defined_sample_ranges import defined_ranges, range_of
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.survey.inputs.survey_messages import undefined_end, undefined_ends
from convkit.worker.survey.sizes.first_working_sizes import at_full_length
from convkit.worker.survey.sizes.size_trials import Trials, has_nan

# Runs at the smallest sizes, whether or not there is time for them.
_LEAST_RUNS = 40
_ENDS = Draw("extreme", extreme=True)


def within_domains(found: SurveyResult, trials: Trials) -> SurveyResult:
    """Return a result whose numbers keep off the ends of their ranges at which the model returns
    NaN or refuses to run, if it does neither in between, nor at the ends that are left. A number
    may count, index or scale something.
    """
    contract = found.contract
    sizes = {axis.name: axis.min for axis in contract.axes}

    def drawn(samples: Mapping[str, Sample], draw: Draw) -> Feeds:
        given = at_full_length(contract.inputs, samples, sizes)
        return trials.drawn(contract.inputs, given, sizes, draw)

    refused, runs = False, 0

    def is_undefined(feeds: Feeds) -> bool:
        nonlocal refused, runs
        runs += 1
        if runs > _LEAST_RUNS and not trials.has_time(1):
            raise TimeoutError
        returned = trials.values(feeds)
        refused = refused or returned is None
        return returned is None or has_nan(returned)

    try:
        ranges = defined_ranges(contract, found.samples, drawn, is_undefined)
    except TimeoutError:
        return found
    notes = [
        undefined_end(name, before, kept, refused=refused)
        for name, narrowed in ranges.items()
        if (before := range_of(found.samples[name])) and (kept := range_of(narrowed))
    ]
    return dataclasses.replace(
        found, samples={**found.samples, **ranges}, notes=(*found.notes, *notes)
    )


def without_open_columns(found: SurveyResult) -> SurveyResult:
    """Return a result in which columns have ranges of their own only where there are as many at all
    sizes: what lies along an axis that may vary has one.
    """
    samples = dict(found.samples)
    for spec in found.contract.inputs:
        sample = samples.get(spec.name)
        if sample is not None and sample.kind == "columns" and isinstance(spec.shape[-1], str):
            samples[spec.name] = Sample("uniform", (min(sample.numbers), max(sample.numbers)))
    return dataclasses.replace(found, samples=samples)


def skipping_undefined_ends(found: SurveyResult, trials: Trials) -> SurveyResult:
    """Return a result that leaves out the case of values at the ends of their ranges if the model
    returns NaN or refuses to run there, and does neither in between: points of which there are more
    than ends are in the same place, and nothing is between them.
    """
    contract = found.contract
    sizes = contract.typical_sizes()
    given = at_full_length(contract.inputs, found.samples, sizes)
    if "extreme" in found.skip or not trials.has_time(2):
        return found
    within, ends = (
        trials.values(trials.drawn(contract.inputs, given, sizes, draw))
        for draw in (Draw("typical"), _ENDS)
    )
    if within is None or has_nan(within) or (ends is not None and not has_nan(ends)):
        return found
    note = undefined_ends(refused=ends is None)
    return dataclasses.replace(found, skip=(*found.skip, "extreme"), notes=(*found.notes, note))
