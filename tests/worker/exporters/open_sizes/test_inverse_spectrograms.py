"""Signals from spectrograms are torch's own, and open in length."""

from typing import Any

import pytest
import torch

from convkit.worker.exporters.open_sizes.inverse_spectrograms import istft
from convkit.worker.exporters.open_sizes.traceable_functions import OpenSizes

WINDOW = torch.hann_window(32)


def spectrum(options: dict[str, Any], rows: int = 2) -> torch.Tensor:
    drawn = torch.randn(rows, 200, generator=torch.Generator().manual_seed(1))
    kept = {each: options[each] for each in options if each != "length"}
    return torch.stft(drawn, 32, return_complex=True, **kept)


@pytest.mark.parametrize(
    "options",
    [
        {"window": WINDOW},
        {"window": WINDOW, "hop_length": 16, "length": 200},
        {"window": WINDOW, "hop_length": 10, "length": 150},
        {"window": WINDOW[:20], "win_length": 20, "hop_length": 6},
        {"hop_length": 32, "center": False},
        {"window": WINDOW, "normalized": True, "length": 230},
    ],
)
@pytest.mark.filterwarnings("ignore:The length of signal is shorter")
@pytest.mark.filterwarnings("ignore:A window was not provided")
def test_signals_are_torchs(options: dict[str, Any]) -> None:
    for given in (spectrum(options), spectrum(options)[0]):
        expected = torch.istft(given, 32, **options)
        torch.testing.assert_close(istft(given, 32, **options), expected, rtol=1e-5, atol=1e-6)


def test_a_two_sided_spectrum_is_left_to_torch() -> None:
    options = {"window": WINDOW, "onesided": False}
    given = spectrum(options)
    torch.testing.assert_close(istft(given, 32, **options), torch.istft(given, 32, **options))


class Gate(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = torch.stft(x, 32, 8, window=WINDOW, return_complex=True)
        return torch.istft(found, 32, 8, window=WINDOW, length=x.shape[-1])


def test_the_length_stays_open() -> None:
    x = torch.randn(2, 200)
    axes = ({1: torch.export.Dim.AUTO},)
    fixed = torch.export.export(Gate(), (x,), dynamic_shapes=axes, strict=False)
    assert not fixed.range_constraints
    with OpenSizes():
        program = torch.export.export(Gate(), (x,), dynamic_shapes=axes, strict=False)
    for length in (64, 200, 333):
        x = torch.randn(2, length)
        torch.testing.assert_close(program.module()(x), Gate()(x), rtol=1e-5, atol=1e-5)
