"""Outputs that are one tensor, or an input: each has its own name."""

from pathlib import Path

import pytest
import torch
from coreml_modules import BATCH, behind_contract, converted, evaluated, saved
from torch import nn


class Repeating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.layer(x)
        return y, x, y.tanh(), y, ids


class Recurrent(Repeating):
    """Followed by torch.jit.trace, as recurrent layers are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(4, 4, batch_first=True)

    def forward(self, x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = self.layer(x[:, None])[0][:, 0]
        return y, x, y.tanh(), y, ids


@pytest.mark.parametrize("module", [Repeating(), Recurrent()])
def test_each_output_has_its_own_name(module: nn.Module, tmp_path: Path) -> None:
    names = ["y", "x_out", "bounded", "again", "ids_out"]
    x = torch.randn(BATCH.typical, 4)
    ids = torch.arange(BATCH.typical, dtype=torch.int32)
    given = {"x": x, "ids": ids}
    module = module.eval()
    program = saved(converted(behind_contract(module, given, names), given), tmp_path)
    found = evaluated(program, given)
    with torch.no_grad():
        for name, expected in zip(names, module(x, ids), strict=True):
            torch.testing.assert_close(torch.as_tensor(found[name]), expected)
