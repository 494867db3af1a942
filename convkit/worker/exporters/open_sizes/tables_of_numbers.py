"""Powers, combinations and histograms of a list of numbers, of which torch computes sizes from
those of the trace, or has no sizes at all.
"""

import itertools
import math
from collections.abc import Sequence

import torch


def vander(
    x: torch.Tensor,
    N: int | None = None,  # noqa: N803 - torch's
    increasing: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> torch.Tensor:
    """`torch.vander`: the powers of each number, shape (numbers, N)."""
    count = x.shape[0] if N is None else N
    kind = x.dtype if x.is_floating_point() else torch.int64
    column = x.to(kind).unsqueeze(-1)
    ones = torch.ones_like(column)
    if isinstance(count, int) and count <= 1:
        return ones[:, :count]
    powers = torch.cat([ones, column.expand(-1, count - 1)], -1).cumprod(-1)
    return powers if increasing else powers.flip(-1)


def combinations(
    input: torch.Tensor,  # noqa: A002 - torch's
    r: int = 2,
    with_replacement: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> torch.Tensor:
    """`torch.combinations`: choices of `r` numbers in their order, shape (choices, r)."""
    size = input.shape[0]
    if isinstance(size, int):
        choose = (
            itertools.combinations_with_replacement if with_replacement else itertools.combinations
        )
        chosen = torch.tensor(list(choose(range(size), r)), dtype=torch.int64).reshape(-1, r)
        return input.index_select(0, chosen.reshape(-1)).reshape(chosen.shape)
    is_chosen = torch.ones((1,) * r, dtype=torch.bool)
    places = torch.arange(size)
    for axis in range(r - 1):
        one = places.reshape(-1, *[1] * (r - 1 - axis))
        other = places.reshape(-1, *[1] * (r - 2 - axis))
        is_chosen = is_chosen & ((one <= other) if with_replacement else (one < other))
    if r == 1:
        return input.unsqueeze(-1)
    chosen = is_chosen.nonzero()
    return input.index_select(0, chosen.reshape(-1)).reshape(-1, r)


def histogram(
    input: torch.Tensor,  # noqa: A002 - torch's
    bins: int | torch.Tensor,
    *,
    range: Sequence[float] | None = None,  # noqa: A002 - torch's
    weight: torch.Tensor | None = None,
    density: bool = False,
) -> object:
    """`torch.histogram`: how many numbers, or how much weight, is between edges; the last edge
    belongs to what is before it.
    """
    flat = input.reshape(-1)
    edges = bins if isinstance(bins, torch.Tensor) else _edges(flat, bins, range)
    count = edges.shape[0] - 1
    place = (flat.unsqueeze(-1) >= edges).sum(-1) - 1
    is_inside = (flat >= edges[0]) & (flat <= edges[-1])
    place = torch.where(is_inside, place.clamp(0, count - 1), -1)
    shares = torch.ones_like(flat) if weight is None else weight.reshape(-1).to(flat.dtype)
    is_here = place.unsqueeze(-1) == torch.arange(count)
    found = torch.where(is_here, shares.unsqueeze(-1), 0.0).sum(0)
    if density:
        found = found / found.sum() / (edges[1:] - edges[:-1])
    return torch.return_types.histogram((found, edges))


def _edges(flat: torch.Tensor, bins: int, ends: Sequence[float] | None) -> torch.Tensor:
    """Return `bins + 1` edges, between the least and the largest number if no ends are given."""
    if ends is not None:
        low, high = ends
        if math.isclose(low, high, rel_tol=0, abs_tol=0):
            low, high = low - 0.5, high + 0.5
        return torch.linspace(low, high, bins + 1, dtype=flat.dtype)
    least, largest = flat.amin(0), flat.amax(0)
    half = torch.where(least == largest, 0.5, 0.0)
    shares = torch.arange(bins + 1, dtype=flat.dtype) / bins
    low, high = least - half, largest + half
    up, down = low + (high - low) * shares, high - (high - low) * (1 - shares)
    return torch.where(torch.arange(bins + 1) < (bins + 1) // 2, up, down)
