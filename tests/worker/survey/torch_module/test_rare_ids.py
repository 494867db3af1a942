"""Ids that a model tells from all others by their order, or by their truth."""

from typing import ClassVar

import pytest
import torch

from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.survey.torch_module.first_call import first_run
from convkit.worker.survey.torch_module.meant_numbers import with_meant_numbers
from convkit.worker.survey.torch_module.module_trials import ModuleTrials


class Pooled(torch.nn.Module):
    """The mean over what is no padding."""

    kept: ClassVar = {
        "above": lambda ids: ids > 0,
        "from": lambda ids: ids >= 1,
        "truth": lambda ids: ids.bool(),
        "cast": lambda ids: ids.to(torch.bool),
        "below": lambda ids: ids < 299,
        "half": lambda ids: ids > 150,
    }

    def __init__(self, way: str) -> None:
        super().__init__()
        self.table, self.way = torch.nn.Embedding(300, 4), way

    def forward(self, ids):
        mask = self.kept[self.way](ids).float()[..., None]
        return (self.table(ids) * mask).sum(1) / mask.sum(1).clamp(min=1)


@pytest.mark.parametrize(
    ("way", "held"),
    [("above", [0]), ("from", [0]), ("truth", [0]), ("cast", [0]), ("below", [299]), ("half", [])],
)
def test_the_rare_side_of_a_comparison_is_held(way, held):
    loaded = LoadedModel(Pooled(way).eval(), "a module")
    trials = ModuleTrials(loaded, 20.0)
    start = with_meant_numbers(first_run(loaded, trials), trials)
    assert [each.value for each in start.samples["ids"].held] == held
