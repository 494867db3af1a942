"""Gives ids the values that a model tells from all others: a pad id, a token of an image."""

import dataclasses
from collections.abc import Iterator, Sequence

from convkit.protocol.messages import Held, Sample
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.survey.sizes.first_working_sizes import Start, at_full_length
from convkit.worker.survey.torch_module.module_trials import ModuleTrials

# The part of drawn values below which they hardly show one side of a comparison.
_FEW = 0.05


def with_meant_numbers(start: Start, trials: ModuleTrials) -> Start:
    """Return a start in which ids also have the values that the model compares them with."""
    if all(start.samples[spec.name].kind != "integers" for spec in start.inputs):
        return start
    given = at_full_length(start.inputs, start.samples, start.sizes)
    uses = trials.uses(trials.drawn(start.inputs, given, start.sizes, Draw("uses")))
    for spec in start.inputs:
        sample = start.samples[spec.name]
        if sample.kind != "integers" or not spec.shape or spec.dtype == "bool":
            continue
        low, high = sample.numbers
        known = {each.value for each in sample.held}
        meant = [*uses.compared.get(spec.name, ()), *_rare(uses.bounds.get(spec.name, ()), sample)]
        meant = [each for each in dict.fromkeys(meant) if low <= each < high]
        more = tuple(Held(number) for number in meant if number not in known)
        if not more or len(known) + len(more) >= high - low:
            continue
        samples = {**start.samples, spec.name: dataclasses.replace(sample, held=sample.held + more)}
        if trials.run(
            start.inputs, at_full_length(start.inputs, samples, start.sizes), start.sizes
        ).worked:
            start = dataclasses.replace(start, samples=samples)
    return start


def _rare(bounds: Sequence[int], sample: Sample) -> Iterator[int]:
    """Yield a value of each side of a comparison by order that hardly any drawn value is on, as
    `ids > 0` has it for padding.
    """
    low, high = sample.numbers
    few = max(1.0, _FEW * (high - low))
    for least in bounds:
        if 0 < least - low <= few:
            yield least - 1
        if 0 < high - least <= few:
            yield least
