"""Axes at whose other sizes an output has a shape that a survey did not find."""

import pytest
import torch

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import SurveyResult
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.survey.torch_module.exporter_choice import exportable


class Halves(torch.nn.Module):
    def forward(self, x):
        return x[:, ::2]


@pytest.mark.parametrize("until", [60.0, -1.0])
@pytest.mark.parametrize("order", [1, -1])
def test_the_axis_is_given_up_and_no_other(until, order):
    axes = (Axis("batch", 1, 2, 4), Axis("sequence", 7, 31, 62))[::order]
    contract = Contract(
        (TensorSpec("x", "float32", ("batch", "sequence")),),
        (TensorSpec("output", "float32", ("batch", 16)),),
        axes,
    )
    loaded = LoadedModel(Halves().eval(), "a module")
    survey = SurveyResult(contract, {}, ran=True)
    found = exportable(loaded, survey, lambda _: None, until, clock=lambda: 0.0)
    assert [axis.name for axis in found.contract.axes] == ["batch"]
    assert found.contract.inputs[0].shape == ("batch", 31)
    assert any("sequence is fixed at 31: at other sizes" in note for note in found.notes)


class Padded(torch.nn.Module):
    """A size of which torch.export makes a range without numbers, and an operator that TorchScript
    does not export.
    """

    def __init__(self) -> None:
        super().__init__()
        self.down = torch.nn.ModuleList([torch.nn.Conv1d(3, 3, 7, 4, 3) for _ in range(2)])
        self.up = torch.nn.ModuleList([torch.nn.ConvTranspose1d(3, 3, 8, 4, 2) for _ in range(2)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[-1]
        first = self.down[0](torch.nn.functional.pad(x, (0, -size % 16)))
        whole = self.up[1](self.up[0](self.down[1](first)) + first)
        return whole[..., :size] + torch.fft.rfft(x[..., :16]).real.mean()


@pytest.mark.thorough
@pytest.mark.parametrize("order", [1, -1])
def test_the_batch_stays_open_if_no_axis_is_blamed(order: int) -> None:
    axes = (Axis("batch", 1, 2, 4), Axis("time", 16, 300, 600))[::order]
    contract = Contract(
        (TensorSpec("x", "float32", ("batch", 3, "time")),),
        (TensorSpec("output", "float32", ("batch", 3, "time")),),
        axes,
    )
    loaded = LoadedModel(Padded().eval(), "a module")
    found = exportable(loaded, SurveyResult(contract, {}, ran=True), lambda _: None)
    assert found.contract.inputs[0].shape == ("batch", 3, 300)
