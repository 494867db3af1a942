"""Special functions are exact to a few units in the last place of float32."""

import math
from collections.abc import Callable

import pytest
import torch

from convkit.worker.exporters.decompositions.functions import special_functions as own

Function = Callable[[torch.Tensor], torch.Tensor]
EDGES = torch.tensor([math.inf, math.nan])
POWERS = torch.logspace(1, 6, 51)
INFINITE = torch.tensor([math.inf, math.inf, -math.inf, -math.inf])
WIDE = torch.cat([torch.linspace(-30, 30, 601), POWERS, -POWERS, INFINITE])
SHARES = torch.linspace(0, 1, len(WIDE) - 4)
CASES: dict[str, tuple[Function, Function, torch.Tensor]] = {
    "erfinv": (
        own.erfinv,
        torch.erfinv,
        torch.cat([torch.linspace(-1, 1, 2001), torch.tensor([1 - 2**-24, 1.5, math.nan])]),
    ),
    "lgamma": (
        own.log_gamma,
        torch.lgamma,
        torch.cat([torch.linspace(1e-3, 30, 2001), torch.logspace(-30, 30, 61), EDGES]),
    ),
    "lgamma left of zero": (own.log_gamma, torch.lgamma, torch.linspace(-20, 0, 801)),
    "digamma": (own.digamma, torch.digamma, torch.linspace(1e-3, 30, 2001)),
    "digamma left of zero": (own.digamma, torch.digamma, torch.linspace(-5.05, 0, 102)),
    "logsigmoid": (own.log_sigmoid, torch.nn.functional.logsigmoid, WIDE),
    "logaddexp": (
        lambda x: own.log_of_sum(x, x.roll(1)),
        lambda x: torch.logaddexp(x, x.roll(1)),
        WIDE,
    ),
    "logaddexp2": (
        lambda x: own.log2_of_sum(x, x.roll(1)),
        lambda x: torch.logaddexp2(x, x.roll(1)),
        WIDE,
    ),
    "cross entropy": (
        lambda x: own.cross_entropy_of_logits(x, SHARES, pos_weight=2 * SHARES, reduction=0),
        lambda x: torch.nn.functional.binary_cross_entropy_with_logits(
            x, SHARES.double(), pos_weight=2 * SHARES.double(), reduction="none"
        ),
        WIDE[:-4],
    ),
    "cumprod": (
        lambda x: own.cumulative_product(x.reshape(3, 4), -1),
        lambda x: x.reshape(3, 4).cumprod(-1),
        torch.tensor([2.0, -1, 0.5, 3, 1, 0, 2, 2, -3, -2, math.inf, 1]),
    ),
    "i0": (own.bessel_i0, torch.i0, torch.linspace(-20, 20, 401)),
    "i0e": (own.scaled_bessel_i0, torch.special.i0e, torch.linspace(-200, 200, 401)),
    "i1": (own.bessel_i1, torch.special.i1, torch.linspace(-20, 20, 401)),
    "i1e": (own.scaled_bessel_i1, torch.special.i1e, torch.linspace(-200, 200, 401)),
    "erfcx": (own.scaled_erfc, torch.special.erfcx, torch.linspace(-4, 200, 401)),
    "log_ndtr": (own.log_normal_distribution, torch.special.log_ndtr, torch.linspace(-99, 9, 401)),
    "ndtri": (
        own.normal_quantile,
        torch.special.ndtri,
        torch.cat([torch.linspace(-0.25, 1.25, 601), torch.logspace(-37, -1, 101), EDGES]),
    ),
    "zeta": (
        lambda x: own.zeta(x, x.flip(0) - 0.5),
        lambda x: torch.special.zeta(x, x.flip(0) - 0.5),
        torch.linspace(0.5, 30, 401),
    ),
    "trigamma": (
        lambda x: own.polygamma(1, x),
        lambda x: torch.polygamma(1, x),
        torch.linspace(-4.3, 30, 401),
    ),
    "polygamma": (
        lambda x: own.polygamma(3, x),
        lambda x: torch.polygamma(3, x),
        torch.linspace(0.01, 30, 401),
    ),
    "multigammaln": (
        lambda x: own.multivariate_log_gamma(x, 3),
        lambda x: torch.special.multigammaln(x, 3),
        torch.linspace(1.1, 30, 401),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_function_is_torchs(name: str) -> None:
    mine, theirs, x = CASES[name]
    expected = theirs(x.double())
    found = mine(x).double()
    torch.testing.assert_close(found, expected, rtol=5e-6, atol=5e-6, equal_nan=True)
