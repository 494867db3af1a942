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
    NaN, if it returns none in between, and none at the ends that are left.
    """
    contract = found.contract
    sizes = {axis.name: axis.min for axis in contract.axes}

    def drawn(samples: Mapping[str, Sample], draw: Draw) -> Feeds:
        given = at_full_length(contract.inputs, samples, sizes)
        return trials.drawn(contract.inputs, given, sizes, draw)

    def is_undefined(feeds: Feeds) -> bool:
        returned = trials.values(feeds)
        return returned is not None and has_nan(returned)

    if trials.is_over:
        return found
    ranges = defined_ranges(contract, found.samples, drawn, is_undefined)
    notes = [
        undefined_end(name, ends_of(found.samples[name]) or kept, kept)
        for name, kept in ranges.items()
    ]
    samples = {name: Sample("uniform", kept) for name, kept in ranges.items()}
    return dataclasses.replace(
        found, samples={**found.samples, **samples}, notes=(*found.notes, *notes)
    )
