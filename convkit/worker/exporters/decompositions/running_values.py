"""Running maxima, minima and sums of exponentials, which ONNX and other targets lack.

Along a fixed size, pairs are combined over distances that double; along an open one, each place
looks at all before it.
"""

from collections.abc import Callable

import torch

from convkit.worker.exporters.decompositions.functions.special_functions import log_of_sum

_Combined = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
_Reduced = Callable[[torch.Tensor, int], torch.Tensor]


def running_maximum(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`x.cummax(dim)`: of equal values, the last one's index."""
    found = _running_maximum(x, dim)
    if x.ndim == 0:
        return found, torch.zeros_like(x, dtype=torch.int64)
    is_there = x == found
    if x.is_floating_point():
        is_there = is_there | (x != x)  # noqa: PLR0124 - true for NaN, which stays
    places = torch.arange(x.shape[dim]).reshape(-1, *[1] * (x.ndim - 1 - dim % x.ndim))
    return found, _running_maximum(torch.where(is_there, places, 0), dim)


def running_minimum(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`x.cummin(dim)`: of equal values, the last one's index."""
    found, places = running_maximum(-x, dim)
    return -found, places


def running_log_of_sum(x: torch.Tensor, dim: int) -> torch.Tensor:
    """`x.logcumsumexp(dim)`, whose translation Log(CumSum(Exp(x))) overflows from 89 and vanishes
    below -103.
    """
    return _running(x, dim, log_of_sum, torch.logsumexp, -torch.inf)


def _running_maximum(x: torch.Tensor, dim: int) -> torch.Tensor:
    # Not an integer type's own bound, which runtimes with fewer bits have not.
    lowest = -torch.inf if x.is_floating_point() else x.min()
    return _running(x, dim, torch.maximum, torch.amax, lowest)


def _running(
    x: torch.Tensor, dim: int, combined: _Combined, reduced: _Reduced, neutral: float | torch.Tensor
) -> torch.Tensor:
    """Combine each element with all before it; `reduced` does so along an axis, in which `neutral`
    changes nothing.
    """
    if x.ndim == 0:
        return x.clone()
    size, distance = x.shape[dim], 1
    if not isinstance(size, int):
        last = x.movedim(dim, -1)
        places = torch.arange(size)
        so_far = torch.where(places <= places.unsqueeze(-1), last.unsqueeze(-2), neutral)
        return reduced(so_far, -1).movedim(-1, dim)
    while distance < size:
        first, earlier, later = (
            x.narrow(dim, start, length)
            for start, length in ((0, distance), (0, size - distance), (distance, size - distance))
        )
        x = torch.cat([first, combined(earlier, later)], dim)
        distance *= 2
    return x
