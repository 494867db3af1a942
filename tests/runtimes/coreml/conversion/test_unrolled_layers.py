"""Recurrent layers are kept whole by a trace on an example; where coremltools cannot convert that,
they are written out step by step.
"""

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, evaluated
from torch import nn


class Recurrent(nn.Module):
    def __init__(self, *, is_special: bool) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 3, batch_first=True)
        self.is_special = is_special

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found, _ = self.layer(x)
        return torch.erfinv(found / 2) if self.is_special else found  # coremltools has none


@pytest.mark.parametrize("is_special", [False, True])
def test_they_are_whole_if_that_can_be_converted(*, is_special: bool) -> None:
    module = Recurrent(is_special=is_special).eval()
    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1))
    found = converted(behind_contract(module, {"x": x}, ["y"]), {"x": x})
    assert (found.source.exported is not None) == is_special
    result = evaluated(found.program, {"x": x})["y"]
    assert np.abs(result - module(x).detach().numpy()).max() <= 1e-5
