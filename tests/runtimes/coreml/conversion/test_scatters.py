"""Writes to parts of a tensor, with a batch that varies, as torch makes them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_modules import BATCH, behind_contract, converted, evaluated, saved
from torch import nn

Use = Callable[[torch.Tensor], torch.Tensor]
PLACES = torch.tensor([3, 0, 2, 0, 1, 3])


def along(x: torch.Tensor) -> torch.Tensor:
    """Return places along the last axis, of which some are equal."""
    return PLACES.expand(x.shape)


def bins(x: torch.Tensor) -> torch.Tensor:
    return (x.abs() * 2).long().clamp(max=3)


def assigned(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, PLACES[:3]] = 1.5
    return y


def beyond(x: torch.Tensor) -> torch.Tensor:
    """Say which places are behind a row's length."""
    return torch.arange(x.shape[1])[None] >= (x[:, 0, 0].abs() * 3).long()[:, None]


def masked(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[beyond(x)] = -1.5
    y[x > 1] = 2.5
    y[:, x[0] < -1] = 0.5
    return y.index_put((beyond(x),), torch.arange(6.0), accumulate=True)


def reduced(how: str, *, include: bool) -> Use:
    return lambda x: x[..., :4].scatter_reduce(2, along(x), x, how, include_self=include)


USES: dict[str, Use] = {
    "scatter": lambda x: torch.zeros_like(x).scatter(1, x.argmax(1, keepdim=True), 1.0),
    "scatter_add": lambda x: torch.zeros(x.shape[0], 4, 4).scatter_add(2, bins(x), x),
    "index_add": lambda x: x[..., :4].index_add(2, PLACES, x, alpha=0.5),
    "index_copy": lambda x: x.index_copy(1, torch.tensor([2, 0]), x[:, 1:3]),
    "index_fill": lambda x: x.index_fill(1, torch.tensor([2, 0]), 5.0),
    "index_reduce": lambda x: x[..., :4].index_reduce(2, PLACES, x, "amax"),
    "assignment": assigned,
    "masks": masked,
    "a size for numbers": lambda x: (
        torch.full_like(x, x.shape[0])
        + torch.full_like(x > 0, x.shape[0])
        + torch.full_like(x, x.shape[0] - 1, dtype=torch.int32)
    ),
    "two indices": lambda x: x.index_put((torch.arange(x.shape[0]), PLACES[:1]), x[:, 1]),
    "added up": lambda x: torch.ops.aten.index_put(
        x, [None, PLACES % 4], x[:, PLACES % 4], accumulate=True
    ),
    **{
        f"{how}, {'with' if include else 'without'} its own": reduced(how, include=include)
        for how in ("sum", "mean", "prod", "amax", "amin")
        for include in (True, False)
    },
    "bits": lambda x: ((x * 50).int() & 13 | (x * 90).int() ^ -7).float(),
    "clamped integers": lambda x: x.gather(2, bins(x).clamp(min=1)),
    "remainder": lambda x: torch.fmod(x * 10, 3.0) + torch.signbit(x),
    "product": lambda x: x.prod(-1),
    "special": lambda x: torch.erfinv(x.tanh() * 0.9) + torch.lgamma(x) + torch.erfc(x),
}


class Using(nn.Module):
    def __init__(self, use: Use) -> None:
        super().__init__()
        self.use = use

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.use(x)


@pytest.mark.filterwarnings("ignore:index_reduce")
@pytest.mark.parametrize("name", USES)
@pytest.mark.sampled(1)
def test_it_matches_torch_at_every_batch(name: str, tmp_path: Path) -> None:
    module = Using(USES[name]).eval()
    x = torch.randn(BATCH.typical, 4, 6, generator=torch.Generator().manual_seed(1))
    program = saved(converted(behind_contract(module, {"x": x}, ["y"]), {"x": x}), tmp_path)
    for batch in (BATCH.typical, BATCH.max):
        given = torch.randn(batch, 4, 6, generator=torch.Generator().manual_seed(batch))
        with torch.no_grad():
            expected = module(given).numpy()
        found = evaluated(program, {"x": given})["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
