"""Caches and states of all layers have their batch second, and masks are as long as what was kept
and what is new.
"""

import pytest
import torch

from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.survey.module_survey import survey_module
from convkit.worker.survey.torch_module.example_run import example_run
from convkit.worker.survey.torch_module.module_trials import ModuleTrials


class Decoder(torch.nn.Module):
    """One step over a cache: (layers, batch, past, width)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(50, 8)

    def forward(
        self, tokens: torch.Tensor, attention_mask: torch.Tensor, past: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        new = self.table(tokens)
        keys = torch.cat([past, new.expand(past.shape[0], *new.shape)], 2)
        scores = torch.einsum("bsd,lbtd->lbst", new, keys)
        hidden = attention_mask[None, :, None] == 0
        weights = scores.masked_fill(hidden, -1e4).softmax(-1)
        return torch.einsum("lbst,lbtd->bsd", weights, keys), keys


class Tolerant(Decoder):
    """With heads, and a mask that is cut or filled up."""

    def forward(
        self, tokens: torch.Tensor, attention_mask: torch.Tensor, past: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        length = tokens.shape[1] + past.shape[3]
        mask = torch.nn.functional.pad(attention_mask, (0, length))[:, :length]
        found, keys = super().forward(tokens, mask, past.transpose(2, 3).flatten(3))
        return found, keys.unflatten(3, (2, 4)).transpose(2, 3)


class Carried(torch.nn.Module):
    """A state of rank five."""

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = state * 0.5 + x[None, :, None, None, :]
        return kept.sum((0, 2, 3)), kept


class Reading(torch.nn.Module):
    """Not a batch: three parts of two colors each, whatever the rows."""

    def forward(self, x: torch.Tensor, parts: torch.Tensor) -> torch.Tensor:
        weights = parts.reshape(3, 2, 16).mean(2)
        return x @ weights.reshape(6, 1)


class Recurrent(torch.nn.Module):
    """A state of two layers, and others taken by their names."""

    def __init__(self) -> None:
        super().__init__()
        self.gru = torch.nn.GRU(3, 4, 2, batch_first=True)

    def forward(self, x: torch.Tensor, **state: torch.Tensor) -> dict[str, torch.Tensor]:
        found, hidden = self.gru(x, state["hidden"])
        return {"y": found + state["bias"][:, None], "hidden": hidden}


def loaded(module: torch.nn.Module) -> LoadedModel:
    return LoadedModel(module.eval(), None)


def shapes_of(module: torch.nn.Module, *example: torch.Tensor) -> dict[str, tuple[object, ...]]:
    start = example_run(loaded(module), example, ModuleTrials(loaded(module), 60.0))
    return {spec.name: spec.shape for spec in start.inputs}


@pytest.mark.slow
def test_a_step_over_a_cache_is_open_in_all_its_sizes() -> None:
    tokens, mask = torch.randint(0, 50, (2, 1)), torch.ones(2, 10, dtype=torch.int64)
    example = (tokens, mask, torch.randn(3, 2, 9, 8))
    found = survey_module(loaded(Decoder()), 60.0, lambda _: None, example)
    shapes = {spec.name: spec.shape for spec in found.contract.inputs}
    new, kept = shapes["tokens"][1], shapes["past"][2]
    assert shapes["past"] == (3, "batch", kept, 8)
    assert shapes["attention_mask"] == ("batch", f"{new} + {kept}")
    axes = {axis.name: axis for axis in found.contract.axes}
    assert axes[str(kept)].max > 9
    assert not any("time" in note for note in found.notes), "layers are no time"


def test_a_mask_over_a_cache_is_a_sum_though_others_are_filled_up() -> None:
    tokens, mask = torch.randint(0, 50, (2, 1)), torch.ones(2, 10, dtype=torch.int64)
    shapes = shapes_of(Tolerant(), tokens, mask, torch.randn(3, 2, 2, 9, 4))
    new, kept = shapes["tokens"][1], shapes["past"][3]
    assert shapes["past"] == (3, "batch", 2, kept, 4)
    assert shapes["attention_mask"] == ("batch", f"{new} + {kept}")


def test_a_state_of_more_axes_has_the_batch_open() -> None:
    example = (torch.randn(2, 4), torch.randn(3, 2, 2, 5, 4))
    assert shapes_of(Carried(), *example)["state"] == (3, "batch", 2, 5, 4)


def test_what_only_has_the_batch_s_size_stays_as_it_is() -> None:
    example = (torch.randn(2, 6), torch.randn(3, 2, 4, 4))
    assert shapes_of(Reading(), *example)["parts"] == (3, 2, 4, 4)


@pytest.mark.parametrize("batch", [2, 3])
def test_a_state_of_as_many_layers_as_rows_has_its_batch_open(batch: int) -> None:
    """Forward takes the state by any name; the example names it."""
    example = {
        "x": torch.randn(batch, 5, 3),
        "hidden": torch.randn(2, batch, 4),
        "bias": torch.randn(batch, 4),
    }
    found = survey_module(loaded(Recurrent()), 60, lambda _: None, example)
    shapes = {spec.name: spec.shape for spec in found.contract.inputs}
    assert shapes["hidden"] == (2, "batch", 4)
    assert shapes["x"][0] == shapes["bias"][0] == "batch"
