"""Standard deviation and mean at once, which torch cannot decompose by itself."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, evaluated
from torch import nn


class Scored(nn.Module):
    def __init__(self, statistics: Callable[[torch.Tensor], tuple[torch.Tensor, ...]]) -> None:
        super().__init__()
        self.statistics = statistics

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        spread, mean = self.statistics(x)
        return (x - mean) / (1 + spread)


@pytest.mark.parametrize(
    "statistics",
    [
        lambda x: torch.std_mean(x, -1, keepdim=True),
        lambda x: torch.std_mean(x, (1, 2), correction=0, keepdim=True),
        lambda x: torch.var_mean(x, 1, unbiased=False, keepdim=True),
    ],
)
def test_they_are_converted(statistics: Callable) -> None:
    x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    module = Scored(statistics)
    found = evaluated(
        converted(behind_contract(module, {"x": x}, ["y"]), {"x": x}).program, {"x": x}
    )
    assert np.abs(found["y"] - module(x).numpy()).max() <= 1e-5
