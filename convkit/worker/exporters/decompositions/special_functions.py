"""Special functions that converters lack, as polynomials and series that are exact to a few units
in the last place of float32.
"""

import functools
import math
from collections.abc import Callable, Sequence

import torch

# M. Giles, Approximating the erfinv function (GPU Computing Gems, 2011), table 5: polynomials of
# w = -log(1 - x^2), the highest power first.
_ERFINV_CENTER = (
    2.81022636e-08,
    3.43273939e-07,
    -3.5233877e-06,
    -4.39150654e-06,
    0.00021858087,
    -0.00125372503,
    -0.00417768164,
    0.246640727,
    1.50140941,
)
_ERFINV_TAIL = (
    -0.000200214257,
    0.000100950558,
    0.00134934322,
    -0.00367342844,
    0.00573950773,
    -0.0076224613,
    0.00943887047,
    1.00167406,
    2.83297682,
)
_ERFINV_SPLIT = 5.0
# Abramowitz and Stegun, Handbook of Mathematical Functions, 9.8.1 and 9.8.2.
_BESSEL_SPLIT = 3.75
_BESSEL_CENTER = (0.0045813, 0.0360768, 0.2659732, 1.2067492, 3.0899424, 3.5156229, 1.0)
_BESSEL_TAIL = (
    0.00392377,
    -0.01647633,
    0.02635537,
    -0.02057706,
    0.00916281,
    -0.00157565,
    0.00225319,
    0.01328592,
    0.39894228,
)
# From here on, few terms of an asymptotic series are exact.
_LARGE = 8
# Bernoulli's numbers: of Stirling's series for log gamma, and of its derivative.
_STIRLING = (1 / 1260, -1 / 360, 1 / 12)
_DIGAMMA = (1 / 252, -1 / 120, 1 / 12)


def erfinv(x: torch.Tensor) -> torch.Tensor:
    """`torch.erfinv`: infinite at 1 and -1, NaN beyond."""
    w = -((1 - x) * (1 + x)).log()  # both are exact near 1, where x^2 is not
    center = _polynomial(w - _ERFINV_SPLIT / 2, _ERFINV_CENTER)
    # The other side of the split is not to become infinite, nor NaN.
    tail = _polynomial(w.clamp(min=_ERFINV_SPLIT).sqrt() - 3, _ERFINV_TAIL)
    found = x * torch.where(w < _ERFINV_SPLIT, center, tail)
    return torch.where(x.abs() == 1, x * math.inf, found)


def log_gamma(x: torch.Tensor) -> torch.Tensor:
    """`torch.lgamma`: the logarithm of the absolute value of the gamma function."""
    is_left = x < 0.5
    right = _log_gamma_right(torch.where(is_left, 1 - x, x))
    # Reflected at 0.5; the sine of a whole number times pi is zero, and its logarithm infinite.
    sine = torch.sin(math.pi * (x - x.round())).abs()
    return torch.where(is_left, math.log(math.pi) - sine.log() - right, right)


def _log_gamma_right(x: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of gamma of numbers from 0.5."""
    is_small = x < _LARGE
    near = torch.where(is_small, x, 1.0)
    product = functools.reduce(torch.mul, [near + step for step in range(_LARGE)])
    far = torch.where(is_small, x + _LARGE, x)
    inverse = far.reciprocal()
    series = inverse * _polynomial(inverse * inverse, _STIRLING)
    # Written so that infinity is not subtracted from itself.
    found = (far - 0.5) * (far.log() - 1) + (math.log(2 * math.pi) - 1) / 2 + series
    return torch.where(is_small, found - product.log(), found)


def digamma(x: torch.Tensor) -> torch.Tensor:
    """`torch.digamma`: the derivative of `lgamma`."""
    is_left = x < 0.5
    right = torch.where(is_left, 1 - x, x)
    is_small = right < _LARGE
    near = torch.where(is_small, right, 1.0)
    steps = functools.reduce(torch.add, [(near + step).reciprocal() for step in range(_LARGE)])
    far = torch.where(is_small, right + _LARGE, right)
    square = far.reciprocal().square()
    found = far.log() - 0.5 * far.reciprocal() - square * _polynomial(square, _DIGAMMA)
    found = torch.where(is_small, found - steps, found)
    turn = math.pi * (x - x.round())
    reflected = found - math.pi * torch.cos(turn) / torch.sin(turn)
    is_pole = x == x.floor()
    pole = torch.where(x == 0, -math.inf, math.nan)
    return torch.where(is_left, torch.where(is_pole, pole, reflected), found)


def bessel_i0(x: torch.Tensor) -> torch.Tensor:
    """`torch.i0`."""
    return scaled_bessel_i0(x) * x.abs().exp()


def scaled_bessel_i0(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.i0e`: `i0` times `exp(-|x|)`."""
    size = x.abs()
    is_near = size < _BESSEL_SPLIT
    near = torch.where(is_near, size, 1.0)
    far = torch.where(is_near, _BESSEL_SPLIT, size)
    center = _polynomial((near / _BESSEL_SPLIT).square(), _BESSEL_CENTER) * (-near).exp()
    tail = _polynomial(_BESSEL_SPLIT / far, _BESSEL_TAIL) * far.rsqrt()
    return torch.where(is_near, center, tail)


def _polynomial(x: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    """Return a polynomial, its highest power first."""
    found = torch.full_like(x, coefficients[0])
    for each in coefficients[1:]:
        found = found * x + each
    return found


def log_sigmoid(x: torch.Tensor) -> torch.Tensor:
    """`logsigmoid`, whose translation Log(Sigmoid(x)) is -inf where a runtime's sigmoid is 0
    (onnxruntime 1.31: below -18).
    """
    return torch.clamp_max(x, 0) - torch.log1p(torch.exp(-x.abs()))


def log_of_sum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`logaddexp`, whose translation Log(Exp(a) + Exp(b)) overflows from 89 and vanishes below
    -103.
    """
    return _above_larger(a, b, lambda distance: torch.log1p(torch.exp(-distance)))


def log2_of_sum(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """`logaddexp2`: the same with powers of 2."""
    return _above_larger(a, b, lambda distance: torch.log2(1 + torch.exp2(-distance)))


def _above_larger(
    a: torch.Tensor, b: torch.Tensor, rest: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Return the larger number plus what the other adds to it at a distance."""
    larger = torch.maximum(a, b)
    added = larger + rest((a - b).abs())
    return torch.where((a == b) & (a.abs() == math.inf), a, added)  # inf - inf is NaN


def cross_entropy_of_logits(
    logits: torch.Tensor,
    labels: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> torch.Tensor:
    """`binary_cross_entropy_with_logits` by `log_sigmoid`; `reduction` is torch's number of none,
    mean or sum.
    """
    scale = 1 if pos_weight is None else (pos_weight - 1) * labels + 1
    loss = (1 - labels) * logits - scale * log_sigmoid(logits)
    loss = loss if weight is None else loss * weight
    return (loss, loss.mean(), loss.sum())[reduction]


def cumulative_product(
    x: torch.Tensor, dim: int, *, dtype: torch.dtype | None = None
) -> torch.Tensor:
    """`cumprod`, which ONNX lacks: in each row of a square, what comes later is 1."""
    last = x.to(dtype or x.dtype).movedim(dim, -1)
    places = torch.arange(last.shape[-1])
    so_far = torch.where(places <= places.unsqueeze(-1), last.unsqueeze(-2), 1)
    return so_far.prod(-1).movedim(-1, dim)
