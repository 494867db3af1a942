"""Resizing to a size that the model computes: coremltools resizes by fixed factors."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, evaluated
from torch import nn
from torch.nn.functional import interpolate

from convkit.protocol.contract import Axis

AXES = (Axis("batch", 1, 2, 4), Axis("height", 2, 7, 20), Axis("width", 2, 9, 20))
RESIZED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "nearest": lambda x: interpolate(x, size=(x.shape[2] * 3 // 2, x.shape[3] + 3)),
    "bilinear": lambda x: interpolate(x, size=(x.shape[2] + 5, x.shape[3] * 2), mode="bilinear"),
    "corners": lambda x: interpolate(
        x, size=(x.shape[2] // 2 + 5, x.shape[3]), mode="bilinear", align_corners=True
    ),
}


class Resized(nn.Module):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return RESIZED[self.name](x.unsqueeze(1)).squeeze(1)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", RESIZED)
def test_an_image_takes_a_computed_size(name: str) -> None:
    x = torch.randn(2, 7, 9, generator=torch.Generator().manual_seed(0))
    program = converted(behind_contract(Resized(name), {"x": x}, ["y"], AXES), {"x": x}).program
    for sizes in ((1, 3, 5), (2, 7, 9), (4, 20, 13)):
        given = torch.randn(sizes, generator=torch.Generator().manual_seed(1))
        found = evaluated(program, {"x": given})["y"]
        assert np.abs(found - Resized(name)(given).numpy()).max() <= 1e-5
