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
