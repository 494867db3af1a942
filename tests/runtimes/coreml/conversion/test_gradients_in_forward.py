"""Gradients in `forward`: coremltools has none of the parts of a normalization."""

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, evaluated
from torch import nn


class Slope(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda given: self.layer(given).square().sum())(x)


@pytest.mark.parametrize(
    "layer", [nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8)), nn.Sequential(nn.Conv1d(5, 2, 3))]
)
def test_they_are_the_original_s(layer: nn.Module) -> None:
    x = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(1))
    slope = Slope(layer).eval().requires_grad_(requires_grad=False)
    conversion = converted(behind_contract(slope, {"x": x}, ["y"]), {"x": x})
    assert conversion.source.refusal is None
    found = evaluated(conversion.program, {"x": x})["y"]
    assert np.allclose(found, slope(x).numpy(), rtol=1e-3, atol=1e-4)
