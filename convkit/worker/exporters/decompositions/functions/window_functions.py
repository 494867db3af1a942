"""Weights of windows of samples, which models of sound compute: torch's `hamming_window` and its
like, by their definitions.
"""

import math
from collections.abc import Callable

import torch

from convkit.worker.exporters.decompositions.functions.special_functions import bessel_i0

_Weights = Callable[[torch.Tensor], torch.Tensor]


def _weighted(
    weights: _Weights, length: int, *, periodic: bool, dtype: torch.dtype | None
) -> torch.Tensor:
    """Return a window's weights; `weights` maps places from 0 to 1 to them. The last place of one
    that is `periodic` is left out.
    """
    dtype = dtype or torch.get_default_dtype()
    if length == 1:
        return torch.ones(1, dtype=dtype)
    places = torch.arange(length, dtype=dtype) / (length if periodic else length - 1)
    return weights(places)


def hamming(
    window_length: int,
    periodic: bool = True,  # noqa: FBT001, FBT002 - torch's
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> torch.Tensor:
    """`torch.hamming_window`."""
    return _weighted(
        lambda places: alpha - beta * torch.cos(2 * math.pi * places),
        window_length,
        periodic=periodic,
        dtype=dtype,
    )


def blackman(
    window_length: int,
    periodic: bool = True,  # noqa: FBT001, FBT002 - torch's
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> torch.Tensor:
    """`torch.blackman_window`."""
    return _weighted(
        lambda places: (
            0.42 - 0.5 * torch.cos(2 * math.pi * places) + 0.08 * torch.cos(4 * math.pi * places)
        ),
        window_length,
        periodic=periodic,
        dtype=dtype,
    )


def bartlett(
    window_length: int,
    periodic: bool = True,  # noqa: FBT001, FBT002 - torch's
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> torch.Tensor:
    """`torch.bartlett_window`."""
    return _weighted(
        lambda places: 1 - (2 * places - 1).abs(), window_length, periodic=periodic, dtype=dtype
    )


def kaiser(
    window_length: int,
    periodic: bool = True,  # noqa: FBT001, FBT002 - torch's
    beta: float = 12.0,
    *,
    dtype: torch.dtype | None = None,
    **_: object,
) -> torch.Tensor:
    """`torch.kaiser_window`."""

    def weights(places: torch.Tensor) -> torch.Tensor:
        inside = (1 - (2 * places - 1).square()).clamp_min(0).sqrt()
        return bessel_i0(beta * inside) / bessel_i0(torch.full((), beta, dtype=places.dtype))

    return _weighted(weights, window_length, periodic=periodic, dtype=dtype)


# By torch's name.
WINDOWS: dict[str, Callable[..., torch.Tensor]] = {
    "hamming_window": hamming,
    "blackman_window": blackman,
    "bartlett_window": bartlett,
    "kaiser_window": kaiser,
}
