"""Inputs of bools, which Core ML has not: what the model makes of them is what torch makes."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_modules import BATCH, behind_contract, converted, evaluated, saved
from torch import nn

USES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "inverted": lambda x, mask: x.masked_fill(~mask, -3.0),
    "logical not": lambda x, mask: x.masked_fill(mask.logical_not(), -3.0),
    "as numbers": lambda x, mask: x * mask.float() + mask.sum(1, keepdim=True),
    "compared": lambda x, mask: x.masked_fill(mask == 0, -3.0),
    "and": lambda x, mask: torch.where(mask & (x > 0), x, -x),
    "exclusive or": lambda x, mask: torch.where(mask ^ (x > 0), x, -x),
    "masked scores": lambda x, mask: (x.masked_fill(~mask, float("-inf"))).softmax(-1),
    "returned": lambda x, mask: x + (~mask).to(x.dtype) * 2,
}


class Using(nn.Module):
    def __init__(self, use: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.use = use

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.use(x, mask)


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.attention(x, x, x, key_padding_mask=mask, need_weights=False)[0]


def matches(module: nn.Module, x: torch.Tensor, folder: Path) -> None:
    mask = torch.tensor([[True, False, True, True, False], [True, True, False, False, False]])
    module = module.eval()
    program = saved(
        converted(behind_contract(module, {"x": x, "mask": mask}, ["y"]), {"x": x, "mask": mask}),
        folder,
    )
    for rows in (BATCH.typical, BATCH.max):
        given = x.repeat(2, *(1,) * (x.dim() - 1))[:rows], mask.repeat(2, 1)[:rows]
        with torch.no_grad():
            expected = module(*given).numpy()
        found = evaluated(program, {"x": given[0], "mask": given[1].to(torch.int32)})["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", USES)
@pytest.mark.sampled(2)
def test_what_is_made_of_a_mask_is_what_torch_makes(name: str, tmp_path: Path) -> None:
    x = torch.randn(BATCH.typical, 5, generator=torch.Generator().manual_seed(1))
    matches(Using(USES[name]), x, tmp_path)


@pytest.mark.thorough
def test_torchs_own_attention_takes_a_mask(tmp_path: Path) -> None:
    x = torch.randn(BATCH.typical, 5, 8, generator=torch.Generator().manual_seed(1))
    matches(Attending(), x, tmp_path)
