"""Narrows drafted samples of fractions to values for which a file or module is defined."""

import dataclasses
from collections.abc import Mapping

from convkit.cases.case import Feeds
from convkit.cases.defined_ranges import defined_ranges
from convkit.cases.samples import Draw, ends_of
from convkit.models.survey.start import at_full_length
from convkit.models.survey.trials import Trials, has_nan
from convkit.models.survey.wording import undefined_end
from convkit.worker.protocol import Sample, SurveyResult


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
        returned = trials.values(feeds)
        refused = refused or returned is None
        return returned is None or has_nan(returned)

    if trials.is_over:
        return found
    ranges = defined_ranges(contract, found.samples, drawn, is_undefined)
    notes = [
        undefined_end(name, ends_of(found.samples[name]) or kept, kept, refused=refused)
        for name, kept in ranges.items()
    ]
    samples = {name: Sample("uniform", kept) for name, kept in ranges.items()}
    return dataclasses.replace(
        found, samples={**found.samples, **samples}, notes=(*found.notes, *notes)
    )
