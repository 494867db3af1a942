"""Remainders of floating-point numbers, and quotients that round down, as torch computes them.

torch's ONNX exporter divides and rounds: 0.5 // 0.1 becomes 5, where torch, by C's `fmod` of both
numbers, gives 4. Runtimes have `fmod` as `a - trunc(a / b) * b`, which is off by up to `b` wherever
the quotient rounds to a whole number. Here products are split so that each is exact (Dekker, 1971).
"""

import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

Number: TypeAlias = torch.Tensor | float
# By type: bits of the significand, and what the divisor is split by: half of the bits each.
_BITS = {torch.float32: (24, 12), torch.float64: (53, 27)}
# Divisors, as powers of 2, whose products neither overflow nor lose digits to small numbers.
_EXPONENTS = 64


def of_fractions(decomposition: Callable[[Number, Number], torch.Tensor]) -> Callable[..., Any]:
    """Return a decomposition that leaves whole numbers to torch."""

    def decomposed(dividend: Number, divisor: Number) -> Any:  # noqa: ANN401 - torch's sign
        is_apt = has_fractions(dividend, divisor)
        return decomposition(dividend, divisor) if is_apt else NotImplemented

    return decomposed


def remainder(dividend: Number, divisor: Number) -> torch.Tensor:
    """`torch.remainder` of floating-point numbers, with the divisor's sign, as c10 corrects it."""
    a, b = _alike(dividend, divisor)
    rest = _rest(a, b, divisor)
    return torch.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)


def truncated_remainder(dividend: Number, divisor: Number) -> torch.Tensor:
    """`torch.fmod` of floating-point numbers, with the dividend's sign."""
    return _rest(*_alike(dividend, divisor), divisor)


def floor_quotient(dividend: Number, divisor: Number) -> torch.Tensor:
    """`torch.floor_divide` of floating-point numbers, by the steps of c10's `div_floor_floating`:
    what is left of the remainder is divided, and the result rounded to the nearest whole number.
    """
    a, b = _alike(dividend, divisor)
    rest = _rest(a, b, divisor)
    quotient = (a - rest) / b
    quotient = torch.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)
    below = torch.floor(quotient)
    below = torch.where(quotient - below > 0.5, below + 1, below)
    return torch.where(b == 0, a / b, below)


def has_fractions(dividend: Number, divisor: Number, **_: object) -> bool:
    """Say whether a call computes in float32 or float64: narrower types torch rounds differently
    for numbers and tensors.
    """
    return _kind(dividend, divisor) in _BITS


def _kind(dividend: Number, divisor: Number) -> torch.dtype:
    return torch.result_type(dividend, divisor)


def _alike(dividend: Number, divisor: Number) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both as tensors of the type that torch computes in."""
    kind = _kind(dividend, divisor)
    a, b = (
        each.to(kind) if isinstance(each, torch.Tensor) else torch.full((), each, dtype=kind)
        for each in (dividend, divisor)
    )
    return a, b


def _rest(dividend: torch.Tensor, divisor: torch.Tensor, given: Number) -> torch.Tensor:
    """Return C's `fmod`, exactly for quotients below half of the largest whole number with all
    neighbors (2^22, 2^51), whatever the runtime's `fmod` is; its own beyond. By a power of two,
    which `given`, the divisor in the call, may be, nothing rounds.
    """
    bits, half = _BITS[dividend.dtype]
    if _is_power_of_two(given):
        return dividend - torch.trunc(dividend / divisor) * divisor
    a, b = dividend.abs(), divisor.abs()
    times = torch.trunc(a / b)
    low = b * 2.0**-half  # scaled, so that a narrower type does not overflow
    upper = ((b + low) - ((b + low) - low)) * 2.0**half
    lower = b - upper
    step = 2.0 ** (bits - half)
    many = torch.round(times / step) * step
    few = times - many
    rest = a - many * upper - many * lower - few * upper - few * lower
    rest = torch.where(rest < 0, rest + b, rest)  # a quotient that was rounded up
    rest = torch.where(rest >= b, rest - b, rest)
    rest = torch.where(dividend < 0, -rest, rest)
    usual = (times < 2.0 ** (bits - 2)) & (b > 2.0**-_EXPONENTS) & (b < 2.0**_EXPONENTS)
    rest = torch.where(usual, rest, torch.fmod(dividend, divisor))
    return torch.where((b == math.inf) & (a < math.inf), dividend, rest)


def _is_power_of_two(number: Number) -> bool:
    return isinstance(number, int | float) and abs(math.frexp(number)[0]) == 0.5
