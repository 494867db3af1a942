"""What torch cannot decompose by itself, or only into what Core ML does not have."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, evaluated
from torch import nn
from torch.nn import functional as F


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
@pytest.mark.sampled(2)
def test_they_are_converted(statistics: Callable) -> None:
    x = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))
    module = Scored(statistics)
    found = evaluated(
        converted(behind_contract(module, {"x": x}, ["y"]), {"x": x}).program, {"x": x}
    )
    assert np.abs(found["y"] - module(x).numpy()).max() <= 1e-5


class Windows(nn.Module):
    def __init__(self, windows: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.windows = windows

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.windows(x)


def refolded(x: torch.Tensor, **options: int) -> torch.Tensor:
    return F.fold(F.unfold(x, (3, 2), **options).square(), (8, 8), (3, 2), **options)


@pytest.mark.parametrize(
    "windows",
    [
        lambda x: x.unfold(-1, 5, 3),
        lambda x: x.unfold(1, 1, 2),
        lambda x: x.unfold(-1, 3, 2).sum(-1),
        lambda x: x.unfold(1, 2, 1),
        pytest.param(lambda x: F.unfold(x, 3, padding=1), marks=pytest.mark.thorough),
        lambda x: F.unfold(x, (3, 2), dilation=2, stride=3),
        pytest.param(refolded, marks=pytest.mark.thorough),
        pytest.param(lambda x: refolded(x, padding=1, stride=2), marks=pytest.mark.thorough),
        pytest.param(lambda x: refolded(x, dilation=2, stride=3), marks=pytest.mark.thorough),
    ],
)
@pytest.mark.sampled(2)
def test_sliding_windows_are_converted(windows: Callable) -> None:
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    module = Windows(windows)
    wanted = module(x).numpy()
    found = evaluated(
        converted(behind_contract(module, {"x": x}, ["y"]), {"x": x}).program, {"x": x}
    )
    assert found["y"].shape == wanted.shape
    assert np.abs(found["y"] - wanted).max() <= 1e-5


HIDDEN = torch.full((8, 6), -torch.inf).masked_fill(torch.eye(8, 6).roll(1, 1) > 0, 0)
BILINEAR = Windows(lambda x: torch.nn.functional.bilinear(x, x.flip(1), WEIGHT))
WEIGHT = torch.randn(4, 6, 6, generator=torch.Generator().manual_seed(1))


def written_one_by_one(x: torch.Tensor) -> torch.Tensor:
    places, used = x.new_zeros(x.shape[0], 2, dtype=torch.long), torch.ones(len(x), 2).bool()
    places[:, 0] = x[:, 0, 0].argmax(-1)
    places[:, 1] = x[:, 1, 0].argmin(-1)
    used[:, 1] = x[:, 1, 0, 0] > 0
    return x.flatten(1).gather(1, places) * used


CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a diagonal of the last axes": lambda x: x[..., :6].diagonal(dim1=-2, dim2=-1),
    "a diagonal below": lambda x: x.diagonal(-2, 3, 2),
    "infinities beside a diagonal": lambda x: (x + HIDDEN).diagonal(1, 2, 3),
    "a diagonal of bools": lambda x: (x > 0).diagonal(1, 2, 3).float(),
    "distances": lambda x: torch.cdist(x, 2 * x.flip(2)) + torch.cdist(x, x, p=1),
    "a bilinear layer": BILINEAR,
    "signs of another tensor": lambda x: torch.copysign(x, x.flip(1)) + torch.hypot(x, x.flip(2)),
    "a stable sort": lambda x: x.sort(dim=2, stable=True).values,
    "indices of two shapes": lambda x: x.flatten(1).index_put(
        (torch.arange(x.shape[0])[:, None], torch.tensor([[3, 1]])), torch.tensor(2.0)
    ),
    "places written one by one": written_one_by_one,
    "functions of whole numbers": lambda x: (
        (8 * x).int().abs().sqrt()
        + (x > 0).long().sum(3, keepdim=True).exp2()
        + torch.sin(x.long())
    ),
    "acosh": lambda x: torch.acosh(1 + x.abs()),
    "asinh": lambda x: torch.asinh(3 * x),
    "decimals": lambda x: torch.round(4 * x, decimals=1),
    "a remainder of the dividend's sign": lambda x: torch.fmod(x, -0.75) + torch.fmod(x, 2 + x**2),
    "shifts": lambda x: ((8 * x).int() >> 2).float() + ((8 * x).int() << 3),
    "shifts by tensors": lambda x: ((8 * x).int() >> (x > 0).int()) + (x.int() << (x > 1).int()),
    "buckets": lambda x: torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5])).float(),
    "a search on the right": lambda x: torch.searchsorted(
        x.sort(-1).values, x.round(), right=True
    ).float(),
    "a mean with a divisor": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, divisor_override=5),
    "maxima of equal windows": lambda x: F.adaptive_max_pool2d(x, (4, 2)),
    "places of maxima": lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2),
    "a padding that cuts": lambda x: F.pad(x, (-1, 2, 1, -3), value=2.0),
    "an output padding": lambda x: F.conv_transpose2d(
        x, torch.ones(3, 2, 2, 2), torch.ones(2), stride=3, output_padding=(2, 1)
    ),
    "a triangle's places": lambda x: x[
        :, :, torch.tril_indices(8, 6)[0], torch.tril_indices(8, 6)[1]
    ],
    "a masked assignment": lambda x: x.masked_scatter(x > 0, 2 * x.flip(1)),
    "a sum of bools as an index": lambda x: x.gather(3, (x > 0).sum(3, keepdim=True).clamp_max(5)),
    "running sums of exponentials": lambda x: torch.logcumsumexp(60 * x, 2),
    "a roll of all axes": torch.fft.fftshift,
    "an einsum with an ellipsis": lambda x: torch.einsum("...ij->...ji", x),
    "an einsum of a diagonal": lambda x: torch.einsum("bchh->bch", x[..., :6, :]),
    "an einsum without a result": lambda x: torch.einsum("bcij,bcjk", x, x.mT),
    "a spectrum": lambda x: torch.fft.rfft(x).abs(),
    "a filtered spectrum": lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * (1 - 2j), s=(8, 6)),
    "windows, added up again": lambda x: torch.istft(
        torch.stft(x.flatten(1), 8, 3, window=torch.ones(8), return_complex=True),
        *(8, 3),
        window=torch.ones(8),
    ),
}
# Others of their kind are quicker.
SLOW_CALLS = {"a filtered spectrum", "windows, added up again"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[pytest.mark.thorough] * (each in SLOW_CALLS)) for each in CALLS],
)
@pytest.mark.sampled(8)
def test_calls_that_coremltools_refuses_or_gets_wrong(name: str) -> None:
    x = torch.randn(2, 3, 8, 6, generator=torch.Generator().manual_seed(0))
    module = Windows(CALLS[name])
    inside = behind_contract(module, {"x": x}, ["y"])
    expected = module(x).numpy()
    found = evaluated(converted(inside, {"x": x}).program, {"x": x})["y"]
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 2e-6 * max(1, np.abs(expected).max())


@pytest.mark.parametrize(
    "padded",
    [
        lambda ids, _: F.pad(ids, (1, 2, 0, 1), value=7),
        lambda _, x: (~F.pad(x > 0, (1, 0), value=True)).int(),
        lambda ids, _: F.pad(ids, (-1, 1), value=16777219),
    ],
)
def test_whole_numbers_are_padded_as_they_are(padded: Callable) -> None:
    """Core ML pads fractions only, and float32 has no 16777217."""
    inputs = {
        "ids": torch.tensor([[16777217, 3, -5], [1, 536870913, 2]], dtype=torch.int32),
        "x": torch.tensor([[1.0, -1.0, 2.0], [-3.0, 4.0, 0.5]]),
    }
    module = Padded(padded)
    program = converted(behind_contract(module, inputs, ["y"]), inputs).program
    found = evaluated(program, inputs)
    assert np.array_equal(found["y"], module(*inputs.values()).numpy())


class Padded(nn.Module):
    def __init__(self, padded: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.padded = padded

    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return self.padded(ids, x)
