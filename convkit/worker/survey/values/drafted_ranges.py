"""Narrows drafted samples of fractions to values for which a file or module is defined."""

import dataclasses
from collections.abc import Mapping

from convkit.protocol.messages import Sample, SurveyResult
from convkit.worker.cases.case import Feeds
from convkit.worker.cases.defined_sample_ranges import defined_ranges
from convkit.worker.cases.values.sampled_values import Draw, ends_of
from convkit.worker.survey.inputs.survey_messages import undefined_end
from convkit.worker.survey.sizes.first_working_sizes import at_full_length
from convkit.worker.survey.sizes.size_trials import Trials, has_nan


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

    refused = False

    def is_undefined(feeds: Feeds) -> bool:
        nonlocal refused
        if not trials.has_time(1):
            raise TimeoutError
        returned = trials.values(feeds)
        refused = refused or returned is None
        return returned is None or has_nan(returned)

    try:
        ranges = defined_ranges(contract, found.samples, drawn, is_undefined)
    except TimeoutError:
        return found
    notes = [
        undefined_end(name, ends_of(found.samples[name]) or kept, kept, refused=refused)
        for name, kept in ranges.items()
    ]
    samples = {name: Sample("uniform", kept) for name, kept in ranges.items()}
    return dataclasses.replace(
        found, samples={**found.samples, **samples}, notes=(*found.notes, *notes)
    )
