"""What an example's values say of inputs called masks, and of values that a model needs."""

from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel

from convkit.protocol.messages import Sample
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.survey.module_survey import survey_module
from convkit.worker.survey.sizes.first_working_sizes import Start
from convkit.worker.survey.torch_module.example_run import example_run
from convkit.worker.survey.torch_module.module_trials import ModuleTrials


class Centre(torch.nn.Module):
    """Divides by how many lines in the middle are sampled: none, for most drawn masks."""

    def forward(self, masked_lines: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        middle = mask[:, 14:18].float().prod(1, keepdim=True)
        return masked_lines * middle / middle


class Sum(torch.nn.Module):
    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return (x * mask).sum(1)


def drafted(folder: Path | None, module: torch.nn.Module, *example: torch.Tensor) -> Start:
    loaded = LoadedModel(module.eval(), None)
    return example_run(loaded, example, ModuleTrials(loaded, 60.0), folder)


def test_values_that_give_no_nan_are_the_examples(tmp_path: Path) -> None:
    mask = torch.zeros(2, 32, 1, dtype=torch.bool)
    mask[:, 10:22] = True
    start = drafted(tmp_path, Centre(), torch.randn(2, 32, 1), mask)
    assert start.samples["mask"].kind == "file"
    assert start.samples["masked_lines"].kind == "uniform"
    assert "has NaN" in start.notes[0]


@pytest.mark.parametrize(
    ("mask", "kind"),
    [
        (torch.ones(2, 5, dtype=torch.int64), "padding_mask"),
        (torch.ones(2, 5), "padding_mask"),
        (torch.rand(2, 5), "uniform"),
        (torch.ones(2, 5, dtype=torch.bool), "padding_mask"),
    ],
)
def test_a_mask_has_two_values(tmp_path: Path, mask: torch.Tensor, kind: str) -> None:
    assert drafted(tmp_path, Sum(), torch.randn(2, 5), mask).samples["mask"].kind == kind


class Mass(torch.nn.Module):
    """Of the particles that are there; no energy is below its momentum."""

    def forward(self, p: torch.Tensor, charge: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        energy, momentum = (p * mask.unsqueeze(-1)).unbind(-1)
        return (torch.log1p((energy - momentum) / 1e-3) * (1 + charge)).sum(1)


@pytest.mark.parametrize("inverted", [False, True])
def test_a_mask_that_hides_everything_is_not_the_examples(
    tmp_path: Path, *, inverted: bool
) -> None:
    class Inverted(Mass):
        def forward(self, p: torch.Tensor, charge: torch.Tensor, mask: torch.Tensor):
            return super().forward(p, charge, ~mask if inverted else mask)

    momentum = torch.randn(3, 12) * 20
    charge = torch.randint(-1, 2, (3, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(12) < torch.tensor([[8], [10], [11]])
    particles = torch.stack([momentum.abs() + 0.1, momentum], -1)
    example = particles, charge, ~mask if inverted else mask
    with pytest.raises(StageFailedError, match="has NaN"):  # no file may hold the example's
        drafted(None, Inverted(), *example)
    start = drafted(tmp_path, Inverted(), *example)
    assert [spec.padding for spec in start.inputs] == [0, 0, int(inverted)]
    assert start.samples["p"].kind == "file"
    assert start.samples["charge"].numbers == (-1.0, 2.0)


class Charged(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.kinds = torch.nn.Embedding(8, 4)

    def forward(self, charge: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
        return self.kinds(kind) * charge.unsqueeze(-1)


def test_whole_numbers_below_zero_are_no_rows_of_a_table(tmp_path: Path) -> None:
    example = torch.tensor([-1, 0, 1, 1]), torch.tensor([2, 0, 5, 1])
    samples = drafted(tmp_path, Charged(), *example).samples
    assert samples["charge"].numbers == (-1.0, 2.0)
    assert samples["kind"].numbers == (0.0, 8.0)


def test_a_mask_of_a_module_with_the_configuration_of_its_part_is_tried() -> None:
    config = BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
    )

    class Labels(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.config = config
            self.bert = BertModel(config)

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
            return self.bert(input_ids, attention_mask=attention_mask).last_hidden_state

    torch.manual_seed(0)
    ids = torch.randint(1, 30, (2, 8))
    mask = (torch.arange(8) < torch.tensor([[2], [3]])).long()  # most of the example is padding
    own = LoadedModel(Labels().eval(), "", config=config)
    assert not own.of_transformers
    assert LoadedModel(own.module.bert, "", config=config).of_transformers
    found = survey_module(own, 60.0, lambda _: None, (ids, mask))
    assert found.contract.inputs[1].padding == 0
    assert found.samples["attention_mask"].kind == "padding_mask"


def test_lengths_along_steps_that_the_code_fixes_leave_the_batch_open() -> None:
    class Steps(torch.nn.Module):
        def forward(self, x: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
            total = torch.zeros(x.shape[0], 4)
            for step, each in enumerate(x.split([1] * 6, dim=1)):  # of six steps, and no others
                total = torch.where((step < length)[:, None], total + each[:, 0].tanh(), total)
            return total

    loaded = LoadedModel(Steps().eval(), "")
    example = torch.randn(3, 6, 4), torch.tensor([6, 6, 4])
    found = survey_module(loaded, 60.0, lambda _: None, example)
    assert found.samples["length"] == Sample("lengths", along=6)
    assert [spec.shape for spec in found.contract.inputs] == [("batch", 6, 4), ("batch",)]
