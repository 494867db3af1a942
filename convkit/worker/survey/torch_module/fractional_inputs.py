"""Finds guessed whole numbers that are fractions: a model rounds measurements, not ids."""

import dataclasses
from collections.abc import Mapping

import torch

from convkit.protocol.contract import Axis, Contract
from convkit.protocol.messages import Sample
from convkit.worker.cases.values.sampled_values import Draw
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.original.probing.torch_comparisons import find_decisions
from convkit.worker.survey.sizes.first_working_sizes import Start, at_full_length
from convkit.worker.survey.torch_module.module_trials import ModuleTrials

# Runs of a search for decisions, and of the trial after it.
_RUNS = 5


def with_fractions(start: Start, loaded: LoadedModel, trials: ModuleTrials) -> Start:
    """Return a start in which inputs that the model rounds or looks up between edges, as a table of
    ids never is, are fractions, if the model runs with them.
    """
    guessed = [
        spec
        for spec in start.inputs
        if spec.dtype == "int64" and start.samples[spec.name].kind == "integers"
    ]
    if not guessed or not trials.has_time(_RUNS):
        return start
    rounded = _rounded(start, loaded, trials)
    for spec in guessed:
        if spec.name not in rounded:
            continue
        inputs = tuple(
            dataclasses.replace(each, dtype="float32") if each is spec else each
            for each in start.inputs
        )
        samples = {**start.samples, spec.name: Sample("normal", (0.0, 1.0))}
        if trials.run(inputs, samples, start.sizes).worked:
            start = dataclasses.replace(start, inputs=inputs, samples=samples)
    return start


def _rounded(start: Start, loaded: LoadedModel, trials: ModuleTrials) -> set[str]:
    """Return the inputs whose values become whole numbers on the way."""

    def draw(sizes: Mapping[str, int]) -> tuple[torch.Tensor, ...]:
        given = at_full_length(start.inputs, start.samples, sizes)
        feeds = trials.drawn(start.inputs, given, sizes, Draw("example"))
        return tuple(torch.from_numpy(each) for each in feeds.values())

    axes = tuple(Axis(name, size, size, size) for name, size in start.sizes.items())
    contract = Contract(start.inputs, (), axes)
    found, _ = find_decisions(loaded.module, draw, contract, start.sizes, loaded.source_root)
    return {each.tensor for each in found.values if each.rounds}
