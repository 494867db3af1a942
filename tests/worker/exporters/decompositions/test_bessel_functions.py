"""Bessel functions, orthogonal polynomials and windows of samples are torch's."""

import pytest
import torch

from convkit.worker.exporters.decompositions.functions import bessel_functions as own
from convkit.worker.exporters.decompositions.functions.polynomials import POLYNOMIALS
from convkit.worker.exporters.decompositions.functions.window_functions import WINDOWS

EDGES = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 3.0, 2.0, -2.0, 1e-30])
SIGNED = torch.cat([torch.linspace(-30, 30, 601), EDGES])
CASES = {
    "bessel_j0": own.bessel_j0,
    "bessel_j1": own.bessel_j1,
    "bessel_y0": own.bessel_y0,
    "bessel_y1": own.bessel_y1,
    "modified_bessel_k0": own.bessel_k0,
    "modified_bessel_k1": own.bessel_k1,
    "scaled_modified_bessel_k0": own.scaled_bessel_k0,
    "scaled_modified_bessel_k1": own.scaled_bessel_k1,
    "spherical_bessel_j0": own.spherical_bessel_j0,
}


@pytest.mark.parametrize("name", CASES)
def test_a_bessel_function(name: str) -> None:
    expected = getattr(torch.special, name)(SIGNED.double()).float()
    found = CASES[name](SIGNED)
    torch.testing.assert_close(found, expected, rtol=3e-6, atol=3e-6, equal_nan=True)


@pytest.mark.parametrize("name", POLYNOMIALS)
def test_a_polynomial(name: str) -> None:
    theirs = getattr(torch.special, name)
    x = torch.linspace(-1.5, 2, 36).double()
    for degree in (-1, 0, 1, 2, 3, 6):
        found = POLYNOMIALS[name](x, degree)
        torch.testing.assert_close(found, theirs(x, degree), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window(name: str) -> None:
    theirs = getattr(torch, name)
    for length in (1, 2, 9, 16):
        for periodic in (True, False):
            found = WINDOWS[name](length, periodic)
            torch.testing.assert_close(found, theirs(length, periodic), rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(
            WINDOWS[name](length, dtype=torch.float64), theirs(length, dtype=torch.float64),
            rtol=1e-6, atol=1e-6,
        )  # fmt: skip
