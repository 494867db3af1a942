"""LSTM layers stay whole operations of an ML program, beside operators that only torch.export's
program can be decomposed for.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_modules import BATCH, behind_contract, converted, evaluated, saved
from torch import nn

from convkit.protocol.contract import Axis


class Recurrent(nn.Module):
    def __init__(self, *, is_special: bool) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True)
        self.is_special = is_special

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found, _ = self.layer(x)
        return torch.erfinv(found / 2) if self.is_special else found  # coremltools has none


@pytest.mark.parametrize("is_special", [False, True])
@pytest.mark.sampled(1)
def test_they_are_one_operation_for_each_layer(*, is_special: bool) -> None:
    module = Recurrent(is_special=is_special).eval()
    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1))
    found = converted(behind_contract(module, {"x": x}, ["y"]), {"x": x})
    assert found.source.refusal is None
    kinds = [each.op_type for each in found.model._mil_program.functions["main"].operations]
    assert kinds.count("lstm") == 2
    result = evaluated(found.program, {"x": x})["y"]
    assert np.abs(result - module(x).detach().numpy()).max() <= 1e-5


@pytest.mark.parametrize("is_special", [False, True])
@pytest.mark.sampled(1)
def test_they_take_as_many_steps_as_there_are(tmp_path: Path, *, is_special: bool) -> None:
    module = Recurrent(is_special=is_special).eval()
    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1))
    contract = behind_contract(module, {"x": x}, ["y"], (BATCH, Axis("steps", 1, 5, 12)))
    found = converted(contract, {"x": x})
    assert found.source.refusal is None
    program = saved(found, tmp_path)
    for batch, steps in ((1, 1), (2, 5), (4, 12)):
        x = torch.randn(batch, steps, 4, generator=torch.Generator().manual_seed(steps))
        result = evaluated(program, {"x": x})["y"]
        assert np.abs(result - module(x).detach().numpy()).max() <= 1e-5


class Step(nn.Module):
    """One step of a layer whose states are inputs and outputs."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 3, layers, batch_first=True)

    def forward(
        self, x: torch.Tensor, hidden: torch.Tensor, cell: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        states = (hidden.transpose(0, 1), cell.transpose(0, 1))
        found, (hidden, cell) = self.layer(x.unsqueeze(1), states)
        return found.squeeze(1), hidden.transpose(0, 1), cell.transpose(0, 1)


@pytest.mark.parametrize("layers", [1, 2])
def test_their_states_are_inputs_and_outputs(layers: int) -> None:
    module = Step(layers).eval()
    random = torch.Generator().manual_seed(1)
    inputs = {
        "x": torch.randn(2, 4, generator=random),
        "hidden": torch.randn(2, layers, 3, generator=random),
        "cell": torch.randn(2, layers, 3, generator=random),
    }
    names = ["y", "last_hidden", "last_cell"]
    found = converted(behind_contract(module, inputs, names), inputs)
    assert found.source.refusal is None
    result = evaluated(found.program, inputs)
    for name, expected in zip(names, module(*inputs.values()), strict=True):
        assert np.abs(result[name] - expected.detach().numpy()).max() <= 1e-6
