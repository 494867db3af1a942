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
# The same, 9.8.3 and 9.8.4.
_BESSEL1_CENTER = (0.00032411, 0.00301532, 0.02658733, 0.15084934, 0.51498869, 0.87890594, 0.5)
_BESSEL1_TAIL = (
    -0.00420059,
    0.01787654,
    -0.02895312,
    0.02282967,
    -0.01031555,
    0.00163801,
    -0.00362018,
    -0.03988024,
    0.39894228,
)
# Of log(erfc(z) / t) + z^2, for t = 1 / (1 + z / 2) (W. Press et al., Numerical Recipes, 6.2).
_ERFCX = (
    0.17087277,
    -0.82215223,
    1.48851587,
    -1.13520398,
    0.27886807,
    -0.18628806,
    0.09678418,
    0.37409196,
    1.00002368,
    -1.26551223,
)
# P. Acklam, An algorithm for computing the inverse normal cumulative distribution function (2003):
# numerator and denominator of its tail.
_NDTRI_TAIL = (
    (
        -0.007784894002430293,
        -0.3223964580411365,
        -2.400758277161838,
        -2.549732539343734,
        4.374664141464968,
        2.938163982698783,
    ),
    (0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416, 1.0),
)
_NDTRI_SPLIT = 0.02425
# From here on, few terms of an asymptotic series are exact.
_LARGE = 8
# Bernoulli's numbers: of Stirling's series for log gamma, and of its derivative.
_STIRLING = (1 / 1260, -1 / 360, 1 / 12)
# Bernoulli's numbers over factorials, of Euler's and Maclaurin's sum.
_ZETA = (1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160)
_DIGAMMA = (1 / 252, -1 / 120, 1 / 12)


def of_floats(function: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return a function that takes whole numbers and bools for floats, as torch does."""

    def promoted(*given: object, **named: object) -> torch.Tensor:
        return function(*map(_as_float, given), **named)

    return promoted


def _as_float(given: object) -> object:
    if isinstance(given, torch.Tensor) and not given.is_floating_point():
        return given.to(torch.get_default_dtype())
    return given


def erfinv(x: torch.Tensor) -> torch.Tensor:
    """`torch.erfinv`: infinite at 1 and -1, NaN beyond."""
    w = -((1 - x) * (1 + x)).log()  # both are exact near 1, where x^2 is not
    center = polynomial(w - _ERFINV_SPLIT / 2, _ERFINV_CENTER)
    # The other side of the split is not to become infinite, nor NaN.
    tail = polynomial(w.clamp(min=_ERFINV_SPLIT).sqrt() - 3, _ERFINV_TAIL)
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
    series = inverse * polynomial(inverse * inverse, _STIRLING)
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
    found = far.log() - 0.5 * far.reciprocal() - square * polynomial(square, _DIGAMMA)
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
    center = polynomial((near / _BESSEL_SPLIT).square(), _BESSEL_CENTER) * (-near).exp()
    tail = polynomial(_BESSEL_SPLIT / far, _BESSEL_TAIL) * far.rsqrt()
    return torch.where(is_near, center, tail)


def bessel_i1(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.i1`."""
    return scaled_bessel_i1(x) * x.abs().exp()


def scaled_bessel_i1(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.i1e`: `i1` times `exp(-|x|)`."""
    size = x.abs()
    is_near = size < _BESSEL_SPLIT
    near = torch.where(is_near, size, 1.0)
    far = torch.where(is_near, _BESSEL_SPLIT, size)
    center = near * polynomial((near / _BESSEL_SPLIT).square(), _BESSEL1_CENTER) * (-near).exp()
    tail = polynomial(_BESSEL_SPLIT / far, _BESSEL1_TAIL) * far.rsqrt()
    found = torch.where(is_near, center, tail)
    return torch.where(x < 0, -found, found)


def scaled_erfc(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.erfcx`: `erfc` times `exp(x^2)`."""
    right = _scaled_erfc_right(x.abs())
    return torch.where(x < 0, 2 * (x * x).exp() - right, right)


def _scaled_erfc_right(x: torch.Tensor) -> torch.Tensor:
    part = (1 + x / 2).reciprocal()
    return part * polynomial(part, _ERFCX).exp()


def log_normal_distribution(x: torch.Tensor) -> torch.Tensor:
    """`torch.special.log_ndtr`."""
    place = x.abs() * math.sqrt(0.5)
    half = _scaled_erfc_right(place) / 2
    square = place * place
    return torch.where(x < 0, half.log() - square, torch.log1p(-half * (-square).exp()))


def normal_quantile(p: torch.Tensor) -> torch.Tensor:
    """`torch.special.ndtri`: infinite at 0 and 1, NaN beyond."""
    above = p - 0.5
    center = math.sqrt(2) * erfinv(2 * above)
    share = torch.minimum(p, 1 - p)
    is_tail = share < _NDTRI_SPLIT
    far = (-2 * torch.where(is_tail & (share > 0), share, _NDTRI_SPLIT).log()).sqrt()
    tail = polynomial(far, _NDTRI_TAIL[0]) / polynomial(far, _NDTRI_TAIL[1])
    tail = torch.where(share == 0, -math.inf, torch.where(share < 0, math.nan, tail))
    return torch.where(is_tail, torch.where(above < 0, tail, -tail), center)


def zeta(x: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """`torch.special.zeta` for positive q: a few terms, and Euler's and Maclaurin's sum of the
    rest. Infinite at poles; NaN for an x below 1, and for other q, of which torch knows some.
    """
    x, q = torch.broadcast_tensors(x, q)
    is_inside = (x > 1) & (q > 0)
    power, near = torch.where(is_inside, x, 2.0), torch.where(is_inside, q, 1.0)
    found = functools.reduce(torch.add, [(near + step) ** -power for step in range(_LARGE)])
    far = near + _LARGE
    found = found + far ** (1 - power) / (power - 1) + far**-power / 2
    factor = power * far ** (-power - 1)
    for number, each in enumerate(_ZETA):
        found = found + each * factor
        step = 2 * number + 1
        factor = factor * (power + step) * (power + step + 1) / (far * far)
    is_pole = (x == 1) | ((x > 1) & (q <= 0) & (q == q.floor()))
    return torch.where(is_inside, found, torch.where(is_pole, math.inf, math.nan))


def zeta_of_number(x: float, q: torch.Tensor) -> torch.Tensor:
    """`torch.special.zeta` of a plain number."""
    return zeta(torch.full_like(q, x), q)


def zeta_beside_number(x: torch.Tensor, q: float) -> torch.Tensor:
    """`torch.special.zeta` with a plain number for q."""
    return zeta(x, torch.full_like(x, q))


def polygamma(n: int, x: torch.Tensor) -> torch.Tensor:
    """`torch.polygamma`: the first by reflection, those above for positive numbers."""
    if n == 0:
        return digamma(x)
    order = torch.full_like(x, n + 1)
    if n > 1:
        return (-1) ** (n + 1) * math.factorial(n) * zeta(order, x)
    is_left = x < 0.5
    right = zeta(order, torch.where(is_left, 1 - x, x))
    turn = torch.sin(math.pi * (x - x.round()))
    return torch.where(is_left, (math.pi / turn).square() - right, right)


def multivariate_log_gamma(x: torch.Tensor, p: int) -> torch.Tensor:
    """`torch.special.multigammaln`."""
    parts = [log_gamma(x - number / 2) for number in range(p)]
    return functools.reduce(torch.add, parts) + p * (p - 1) / 4 * math.log(math.pi)


def polynomial(x: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
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
