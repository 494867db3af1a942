"""Replaces samples with which inputs have no effect: a factor below zero may have switched off all
that follows it, and then nothing that is verified proves much.
"""

import dataclasses
from collections.abc import Iterator, Mapping

import numpy as np

from convkit.protocol.messages import Sample, SurveyResult
from convkit.worker.cases.axis_sizes import probe_sizes
from convkit.worker.cases.case import CaseInputs
from convkit.worker.cases.input_probes import base_case, other_values
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.job_context import StageFailedError
from convkit.worker.survey.inputs.input_guesses import Guess
from convkit.worker.survey.sizes.size_trials import Trials

# A model with more inputs is left as it is: each takes a run.
_MOST_INPUTS = 8


def responding(found: SurveyResult, guesses: Mapping[str, Guess], trials: Trials) -> SurveyResult:
    """Return a result with fractions in place of normal numbers for one input, if that gives inputs
    an effect that they lack in the case on which verification changes one after the other.
    """
    if len(found.contract.inputs) > _MOST_INPUTS:
        return found
    idle = _idle(found, trials) or set()
    for samples in _alternatives(found.samples, guesses) if idle else ():
        other = dataclasses.replace(found, samples=samples)
        if not trials.is_over and (left := _idle(other, trials)) is not None and left < idle:
            found, idle = other, left
    return found


def _alternatives(
    samples: Mapping[str, Sample], guesses: Mapping[str, Guess]
) -> Iterator[dict[str, Sample]]:
    for name, sample in samples.items():
        others = guesses[name].others if name in guesses and sample.kind == "normal" else ()
        yield from ({**samples, name: other} for other in others if other.kind == "uniform")


def _idle(found: SurveyResult, trials: Trials) -> set[str] | None:
    """Return the inputs that change no output if they alone get other values; None if that is
    not known.
    """
    made_from = CaseInputs(found.contract, found.samples, 0, ModelFacts())
    try:
        feeds = base_case(made_from, probe_sizes(found.contract)).inputs()
    except StageFailedError:
        return None
    usual = trials.values(feeds)
    if usual is None:
        return None
    idle = set()
    for spec in found.contract.inputs:
        value = other_values(made_from, spec, feeds[spec.name])
        if np.array_equal(value, feeds[spec.name]):
            continue  # its sample allows no other
        changed = trials.values({**feeds, spec.name: value})
        if changed is not None and all(np.array_equal(usual[n], changed[n]) for n in usual):
            idle.add(spec.name)
    return idle
