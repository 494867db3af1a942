"""What models compute with sizes is converted: each operator, at sizes that take other branches."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_modules import BATCH, behind_contract, converted, evaluated, saved
from torch import nn

from convkit.runtimes.coreml.conversion.size_arithmetic import size_operators

SIZES: dict[str, Callable[[torch.Tensor], object]] = {
    "mod": lambda x: (7 - x.shape[0]) % 3,
    "sym_max": lambda x: torch.sym_max(x.shape[0], 3),
    "sym_min": lambda x: torch.sym_min(x.shape[0], 3),
    "sym_float": lambda x: torch.sym_float(x.shape[0]) / 3,
    "sym_int": lambda x: torch.sym_int(x.shape[0] / 3),
    "sym_ite": lambda x: torch.sym_ite(x.shape[0] > 2, 5 * x.shape[0], x.shape[0]),
    "sym_not": lambda x: torch.sym_ite(torch.sym_not(x.shape[0] > 2), 5 * x.shape[0], x.shape[0]),
    "_sym_sqrt": lambda x: torch._sym_sqrt(x.shape[0] + 1),
}


class Scaled(nn.Module):
    """A tensor times a number that is computed from its sizes."""

    def __init__(self, number: Callable[[torch.Tensor], object]) -> None:
        super().__init__()
        self.number = number

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.number(x)


def matches_torch(module: nn.Module, folder: Path) -> None:
    x = torch.randn(BATCH.typical, 3, 5, generator=torch.Generator().manual_seed(1))
    program = saved(converted(behind_contract(module, {"x": x}, ["y"]), {"x": x}), folder)
    for batch in range(BATCH.min, BATCH.max + 1):
        given = x.repeat(BATCH.max, 1, 1)[:batch]
        expected = module(given).numpy()
        found = evaluated(program, {"x": given})["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=str(batch))


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.sampled(2)
def test_it_matches_torch_at_every_size(name: str, tmp_path: Path) -> None:
    assert name in size_operators()
    matches_torch(Scaled(SIZES[name]), tmp_path)


class Picked(nn.Module):
    """The row of each matrix that has the largest score; its axis of 1 goes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = x.sum(-1).argmax(1).view(-1, 1, 1).expand(-1, 1, x.shape[2])
        return x.gather(1, places).squeeze(1).topk(3, dim=1).values


def test_a_size_of_1_is_known_behind_an_open_one(tmp_path: Path) -> None:
    matches_torch(Picked().eval(), tmp_path)


class Unexpanded(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        one = x[:, :1].expand(-1, 3, -1)
        several = x.mean(0).expand(x.shape[0], 3, 5)  # an open size
        return (one + several + x.expand(2, -1, 3, 5)).sum(0, keepdim=True).squeeze(0)


def test_sizes_that_stay_open_do_not_become_1(tmp_path: Path) -> None:
    matches_torch(Unexpanded().eval(), tmp_path)
