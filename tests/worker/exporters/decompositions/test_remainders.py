"""Remainders and quotients that round down are torch's, also in runtimes whose `fmod` rounds."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import openvino
import pytest
import torch
from torch import nn

from convkit.worker.exporters.decompositions import remainders
from convkit.worker.exporters.decompositions.decomposition_table import decomposed

Kind = Callable[..., torch.Tensor]
PAIRS: list[tuple[Kind, Kind]] = [
    (remainders.floor_quotient, torch.floor_divide),
    (remainders.remainder, torch.remainder),
    (remainders.truncated_remainder, torch.fmod),
]
STEPS = [0.1, 0.3, 0.7, 1e-3, -0.1, -0.7, 1 / 3, 2.5, 3.0]
SPECIAL = [0.0, -0.0, math.inf, -math.inf, math.nan, 1e-30, -1e-7, 1e5, 0.5, -1.0]


def pairs_of_numbers(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return multiples of steps, as they round, numbers of many sizes, and each special pair."""
    random = torch.Generator().manual_seed(0)
    count = 4000
    steps = torch.tensor(STEPS, dtype=dtype)[torch.randint(0, 9, (count,), generator=random)]
    times = torch.randint(-3000, 3000, (count,), generator=random)
    sizes = 10 ** torch.rand(2, count, generator=random, dtype=torch.float64).mul(9).sub(5)
    any_size = (torch.randn(2, count, generator=random) * sizes).to(dtype)
    special = torch.tensor(SPECIAL, dtype=dtype)
    pairs = torch.cartesian_prod(special, special).T
    return (
        torch.cat([steps * times, any_size[0], pairs[0]]),
        torch.cat([steps, any_size[1], pairs[1]]),
    )


def assert_same(found: torch.Tensor, expected: torch.Tensor) -> None:
    assert found.dtype == expected.dtype
    assert int((~((found == expected) | (found.isnan() & expected.isnan()))).sum()) == 0


@pytest.mark.parametrize(("mine", "torchs"), PAIRS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_each_is_torchs(mine: Kind, torchs: Kind, dtype: torch.dtype) -> None:
    dividends, divisors = pairs_of_numbers(dtype)
    assert_same(mine(dividends, divisors), torchs(dividends, divisors))
    for number in (0.1, -0.7, 0.25, -2.0, 3):
        assert_same(mine(dividends, number), torchs(dividends, number))


def test_the_runtimes_own_remainder_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    dividends, divisors = pairs_of_numbers(torch.float32)
    expected = torch.fmod(dividends, divisors)
    monkeypatch.setattr(torch, "fmod", lambda a, b: a - torch.trunc(a / b) * b)
    assert not torch.equal(torch.fmod(dividends, divisors), expected)
    usual = ((dividends / divisors).abs() < 2**22) & (divisors.abs() < 2**60)
    usual &= divisors.abs() > 2**-60
    assert int(usual.sum()) > 7000
    found = remainders.truncated_remainder(dividends, divisors)
    assert_same(found[usual], expected[usual])


class Quotients(nn.Module):
    def forward(
        self, x: torch.Tensor, y: torch.Tensor, i: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        quotients = x // 0.1, x // y, torch.div(x, y, rounding_mode="floor")
        return *quotients, x % 0.1, x % y, 1.5 % y, torch.fmod(x, 0.1), i // 3, i % 5


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_onnxruntime_and_openvino_compute_what_torch_computes(tmp_path: Path) -> None:
    dividends, divisors = pairs_of_numbers(torch.float32)
    inputs = (dividends, divisors, torch.arange(-9, 9))
    expected = Quotients()(*inputs)
    program = decomposed(torch.export.export(Quotients(), inputs))
    file = str(tmp_path / "model.onnx")
    torch.onnx.export(program, verbose=False).save(file)
    feeds = [each.numpy() for each in inputs]
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_inputs()]
    exact = session.run(None, dict(zip(names, feeds, strict=True)))
    for found, right in zip(exact, expected, strict=True):
        assert_same(torch.from_numpy(np.asarray(found)), right)
    # OpenVINO's own remainder, of quotients of any size, is only torch's for the usual ones.
    usual = (dividends / divisors).abs() < 2**22
    usual &= (divisors.abs() > 2**-60) & (divisors.abs() < 2**60)
    model = openvino.Core().compile_model(file, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = model(feeds)
    for place in (0, 1, 2, 3, 4, 6):
        found = torch.from_numpy(results[place].copy())
        assert_same(found[usual], expected[place][usual])
