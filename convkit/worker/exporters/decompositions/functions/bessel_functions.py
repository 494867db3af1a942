"""Bessel functions that converters lack, by polynomials exact to about 1e-7 (M. Abramowitz and
I. Stegun, Handbook of Mathematical Functions, 9.4.1 to 9.4.6 and 9.8.5 to 9.8.8).
"""

import math
from collections.abc import Callable, Sequence

import torch

from convkit.worker.exporters.decompositions.functions.special_functions import (
    bessel_i0,
    bessel_i1,
    polynomial,
)

# Up to here, and from here on; the highest power first.
_SPLIT = 3.0
_J0 = (0.0002100, -0.0039444, 0.0444479, -0.3163866, 1.2656208, -2.2499997, 1.0)
_Y0 = (-0.00024846, 0.00427916, -0.04261214, 0.25300117, -0.74350384, 0.60559366, 0.36746691)
_J1 = (0.00001109, -0.00031761, 0.00443319, -0.03954289, 0.21093573, -0.56249985, 0.5)
_Y1 = (0.0027873, -0.0400976, 0.3123951, -1.3164827, 2.1682709, 0.2212091, -0.6366198)
_SIZE0 = (
    *(0.00014476, -0.00072805, 0.00137237, -0.00009512, -0.00552740, -0.00000077, 0.79788456),
)
_TURN0 = (
    *(0.00013558, -0.00029333, -0.00054125, 0.00262573, -0.00003954, -0.04166397, -math.pi / 4),
)
_SIZE1 = (*(-0.00020033, 0.00113653, -0.00249511, 0.00017105, 0.01659667, 0.00000156, 0.79788456),)
_TURN1 = (
    *(-0.00029166, 0.00079824, 0.00074348, -0.00637879, 0.00005650, 0.12499612, -3 * math.pi / 4),
)
_MODIFIED_SPLIT = 2.0
_K0_CENTER = (
    *(0.00000740, 0.00010750, 0.00262698, 0.03488590, 0.23069756, 0.42278420, -0.57721566),
)
_K0_TAIL = (
    *(0.00053208, -0.00251540, 0.00587872, -0.01062446, 0.02189568, -0.07832358, 1.25331414),
)
_K1_CENTER = (*(-0.00004686, -0.00110404, -0.01919402, -0.18156897, -0.67278579, 0.15443144, 1.0),)
_K1_TAIL = (
    *(-0.00068245, 0.00325614, -0.00780353, 0.01504268, -0.03655620, 0.23498619, 1.25331414),
)


def bessel_j0(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.bessel_j0`."""
    size = x.abs()
    near, far, is_near = _sides(size)
    center = polynomial((near / _SPLIT).square(), _J0)
    return torch.where(is_near, center, _wave(far, _SIZE0, _TURN0, torch.cos))


def bessel_j1(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.bessel_j1`."""
    near, far, is_near = _sides(x.abs())
    center = near * polynomial((near / _SPLIT).square(), _J1)
    found = torch.where(is_near, center, _wave(far, _SIZE1, _TURN1, torch.cos))
    return torch.where(x < 0, -found, found)


def bessel_y0(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.bessel_y0`: minus infinity at 0, NaN below."""
    near, far, is_near = _sides(x)
    center = polynomial((near / _SPLIT).square(), _Y0)
    center = center + 2 / math.pi * (near / 2).log() * bessel_j0(near)
    found = torch.where(is_near, center, _wave(far, _SIZE0, _TURN0, torch.sin))
    return _above_zero(x, found, -math.inf)


def bessel_y1(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.bessel_y1`: minus infinity at 0, NaN below."""
    near, far, is_near = _sides(x)
    center = polynomial((near / _SPLIT).square(), _Y1) / near
    center = center + 2 / math.pi * (near / 2).log() * bessel_j1(near)
    found = torch.where(is_near, center, _wave(far, _SIZE1, _TURN1, torch.sin))
    return _above_zero(x, found, -math.inf)


def scaled_bessel_k0(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.scaled_modified_bessel_k0`: `modified_bessel_k0` times `exp(x)`."""
    near, far, is_near = _sides(x, _MODIFIED_SPLIT)
    center = polynomial((near / 2).square(), _K0_CENTER) - (near / 2).log() * bessel_i0(near)
    tail = polynomial(_MODIFIED_SPLIT / far, _K0_TAIL) * far.rsqrt()
    return _above_zero(x, torch.where(is_near, center * near.exp(), tail), math.inf)


def scaled_bessel_k1(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.scaled_modified_bessel_k1`: `modified_bessel_k1` times `exp(x)`."""
    near, far, is_near = _sides(x, _MODIFIED_SPLIT)
    center = polynomial((near / 2).square(), _K1_CENTER) / near
    center = center + (near / 2).log() * bessel_i1(near)
    tail = polynomial(_MODIFIED_SPLIT / far, _K1_TAIL) * far.rsqrt()
    return _above_zero(x, torch.where(is_near, center * near.exp(), tail), math.inf)


def bessel_k0(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.modified_bessel_k0`."""
    return scaled_bessel_k0(x) * (-x).exp()


def bessel_k1(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.modified_bessel_k1`."""
    return scaled_bessel_k1(x) * (-x).exp()


def spherical_bessel_j0(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.spherical_bessel_j0`: the sine of x over x."""
    found = x.sin() / torch.where(x == 0, 1, x)
    return torch.where(x == 0, 1, torch.where(x.abs() == math.inf, 0, found))


def _sides(
    x: torch.Tensor, split: float = _SPLIT
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return numbers up to the split, those from there on, and which are which."""
    is_near = x < split
    near = torch.where(is_near & (x > 0), x, torch.where(x == 0, 0, split))
    return near, torch.where(is_near, split, x), is_near


def _wave(
    x: torch.Tensor,
    size: Sequence[float],
    turn: Sequence[float],
    function: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """Return a wave far from zero; NaN at infinity, as torch's."""
    part = _SPLIT / x
    return polynomial(part, size) * function(x + polynomial(part, turn)) * x.rsqrt()


def _above_zero(x: torch.Tensor, found: torch.Tensor, at_zero: float) -> torch.Tensor:
    return torch.where(x == 0, at_zero, torch.where(x < 0, math.nan, found))
