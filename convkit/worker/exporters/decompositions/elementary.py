"""Functions of single numbers that converters lack, by others."""

import math
from collections.abc import Callable

import torch

from convkit.worker.exporters.decompositions.counted_values import triangle_indices


def hypot(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`torch.hypot`, without squares of large numbers; infinite beside NaN, too."""
    one, other = one.abs(), other.abs()
    larger, smaller = torch.maximum(one, other), torch.minimum(one, other)
    share = smaller / torch.where(larger == 0, 1, larger)
    is_infinite = (one == math.inf) | (other == math.inf)
    return torch.where(is_infinite, math.inf, larger * (share * share + 1).sqrt())


def copysign(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`torch.copysign`; the sign of a zero counts."""
    return torch.where(signbit(other), -one.abs(), one.abs())


def with_sign_of(x: torch.Tensor, number: float) -> torch.Tensor:
    """`torch.copysign` with a plain number."""
    return -x.abs() if math.copysign(1, number) < 0 else x.abs()


def mantissa_and_exponent(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.frexp` of numbers that are not denormal: a logarithm's floor is one off near powers of
    2.
    """
    is_plain = (x != 0) & (x.abs() < math.inf)
    size = torch.where(is_plain, x.abs(), 0.5)
    power = size.log2().floor() + 1
    half = (power / 2).floor()  # 2 to a large power is infinite
    mantissa = size * torch.exp2(-half) * torch.exp2(half - power)
    for is_off, step in ((mantissa >= 1, 1), (mantissa < 0.5, -1)):
        mantissa = torch.where(is_off, mantissa * 2.0**-step, mantissa)
        power = torch.where(is_off, power + step, power)
    mantissa = torch.where(is_plain, torch.where(x < 0, -mantissa, mantissa), x)
    return mantissa, torch.where(is_plain, power, 0).to(torch.int32)


def signbit(x: torch.Tensor) -> torch.Tensor:
    """`torch.signbit`."""
    # A negative zero is known by its reciprocal.
    return (x < 0) | (x.reciprocal() < 0) if x.is_floating_point() else x < 0


def ignoring_nan(
    choose: Callable[..., torch.Tensor], one: torch.Tensor, other: torch.Tensor
) -> torch.Tensor:
    """`fmax` and `fmin`: the other number where one is NaN."""
    chosen = choose(one, other)
    return torch.where(one != one, other, torch.where(other != other, one, chosen))  # noqa: PLR0124


def mean_slope(
    x: torch.Tensor,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,  # noqa: FBT001, FBT002 - torch's
    *_: object,
) -> torch.Tensor:
    """`F.rrelu` outside of training."""
    return NotImplemented if training else torch.where(x < 0, x * ((lower + upper) / 2), x)


def distance(one: torch.Tensor, other: torch.Tensor, p: float = 2) -> torch.Tensor:
    """`torch.dist`."""
    return torch.linalg.vector_norm(one - other, p)


def frequencies(
    n: int, d: float = 1.0, *, halved: bool, dtype: torch.dtype | None = None, **_: object
) -> torch.Tensor:
    """`torch.fft.fftfreq`, or `rfftfreq` if `halved`."""
    numbers = torch.arange(n // 2 + 1 if halved else n)
    if not halved:
        numbers = torch.where(numbers < (n + 1) // 2, numbers, numbers - n)
    return numbers.to(dtype or torch.get_default_dtype()) / (n * d)


def distances(
    one: torch.Tensor, other: torch.Tensor, p: float = 2, _: int | None = None
) -> torch.Tensor:
    """`torch.cdist`: the norms of all differences, without torch's shortcut over a product."""
    return _norm((one.unsqueeze(-2) - other.unsqueeze(-3)).abs(), p)


def pair_distances(x: torch.Tensor, p: float = 2) -> torch.Tensor:
    """`torch.pdist` of a fixed number of rows."""
    one, other = triangle_indices(x.shape[0], x.shape[0], 1, upper=True)
    return _norm((x.index_select(0, one) - x.index_select(0, other)).abs(), p)


def has_fixed_rows(x: torch.Tensor, *_: object) -> bool:
    """Say whether a matrix's number of rows is known."""
    return isinstance(x.shape[0], int)


def _norm(apart: torch.Tensor, p: float) -> torch.Tensor:
    if p == 0:
        return (apart != 0).sum(-1).to(apart.dtype)
    if p == math.inf:
        return apart.amax(-1)
    if p == 1:
        return apart.sum(-1)
    return apart.square().sum(-1).sqrt() if p == 2 else apart.pow(p).sum(-1).pow(1 / p)
