"""Orthogonal polynomials of a degree that the model writes, by their recurrences."""

import functools
from collections.abc import Callable

import torch

_Step = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
_First = Callable[[torch.Tensor], torch.Tensor]


def _evaluated(first: _First, step: _Step, x: torch.Tensor, degree: float) -> torch.Tensor:
    """Return a polynomial of a degree, from those of degrees 0, which is 1, and 1; 0 for a negative
    degree. `step` takes a degree, x, and the two polynomials below.
    """
    if degree < 0:
        return torch.zeros_like(x)
    below, found = torch.ones_like(x), first(x)
    if int(degree) == 0:
        return below
    for number in range(1, int(degree)):
        below, found = found, step(number, x, found, below)
    return found


def _chebyshev(_: int, x: torch.Tensor, found: torch.Tensor, below: torch.Tensor) -> torch.Tensor:
    return 2 * x * found - below


def _hermite(
    degree: int, x: torch.Tensor, found: torch.Tensor, below: torch.Tensor
) -> torch.Tensor:
    return 2 * x * found - 2 * degree * below


def _hermite_e(
    degree: int, x: torch.Tensor, found: torch.Tensor, below: torch.Tensor
) -> torch.Tensor:
    return x * found - degree * below


def _laguerre(
    degree: int, x: torch.Tensor, found: torch.Tensor, below: torch.Tensor
) -> torch.Tensor:
    return ((2 * degree + 1 - x) * found - degree * below) / (degree + 1)


def _legendre(
    degree: int, x: torch.Tensor, found: torch.Tensor, below: torch.Tensor
) -> torch.Tensor:
    return ((2 * degree + 1) * x * found - degree * below) / (degree + 1)


_CHEBYSHEV: dict[str, _First] = {
    "t": lambda x: x,
    "u": lambda x: 2 * x,
    "v": lambda x: 2 * x - 1,
    "w": lambda x: 2 * x + 1,
}


def _shifted(first: _First, x: torch.Tensor, degree: float) -> torch.Tensor:
    return _evaluated(first, _chebyshev, 2 * x - 1, degree)


# By torch's name, without `special_`.
POLYNOMIALS: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    **{
        f"chebyshev_polynomial_{kind}": functools.partial(_evaluated, first, _chebyshev)
        for kind, first in _CHEBYSHEV.items()
    },
    **{
        f"shifted_chebyshev_polynomial_{kind}": functools.partial(_shifted, first)
        for kind, first in _CHEBYSHEV.items()
    },
    "hermite_polynomial_h": functools.partial(_evaluated, lambda x: 2 * x, _hermite),
    "hermite_polynomial_he": functools.partial(_evaluated, lambda x: x, _hermite_e),
    "laguerre_polynomial_l": functools.partial(_evaluated, lambda x: 1 - x, _laguerre),
    "legendre_polynomial_p": functools.partial(_evaluated, lambda x: x, _legendre),
}
