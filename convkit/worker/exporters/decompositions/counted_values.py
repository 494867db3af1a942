"""Distinct values and how often they occur, common divisors, and indices of triangles, by sorting
or by comparing all with all.
"""

import torch

# No pair of numbers of so many bits takes Euclid's algorithm more steps: the worst are Fibonacci's
# numbers (G. Lamé, 1844), of which F(93) needs 63 bits, and F(47) 31.
_EUCLIDEAN_STEPS = {torch.int64: 92, torch.int32: 46, torch.int16: 23, torch.int8: 11}


def mode(
    x: torch.Tensor,
    dim: int = -1,
    keepdim: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> tuple[torch.Tensor, torch.Tensor]:
    """`x.mode(dim)`: of values that are equally frequent the smallest, with its last index."""
    last = x.movedim(dim, -1)
    counts = (last.unsqueeze(-1) == last.unsqueeze(-2)).sum(-1)
    others = torch.inf if x.is_floating_point() else last.max()
    is_mode = counts == counts.amax(-1, keepdim=True)
    found = torch.where(is_mode, last, others).amin(-1, keepdim=True)
    places = torch.where(last == found, torch.arange(last.shape[-1]), 0).amax(-1, keepdim=True)
    found, places = found.movedim(-1, dim), places.movedim(-1, dim)
    return (found, places) if keepdim else (found.squeeze(dim), places.squeeze(dim))


def greatest_common_divisor(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`torch.gcd`, by as many steps of Euclid's algorithm as the element type may need."""
    one, other = torch.broadcast_tensors(one.abs(), other.abs())
    for _ in range(_EUCLIDEAN_STEPS.get(torch.promote_types(one.dtype, other.dtype), 92)):
        is_done = other == 0
        rest = torch.remainder(one, torch.where(is_done, 1, other))
        one, other = torch.where(is_done, one, other), rest
    return one


def least_common_multiple(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """`torch.lcm`: 0 if one of both is."""
    divisor = greatest_common_divisor(one, other)
    shares = torch.div(one, torch.where(divisor == 0, 1, divisor), rounding_mode="floor")
    return (shares * other).abs()


def counts(
    x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    """`torch.bincount`, of as many numbers as the largest asks for."""
    count = torch.clamp_min(x.amax() + 1, minlength).item()
    torch._check(count >= 0)  # noqa: SLF001 - torch's documented name
    is_number = x.unsqueeze(-1) == torch.arange(count)
    if weights is None:
        return is_number.sum(0)
    return torch.where(is_number, weights.unsqueeze(-1), 0).sum(0)


def histogram(
    x: torch.Tensor,
    bins: int = 100,
    min: float = 0,  # noqa: A002 - torch's
    max: float = 0,  # noqa: A002 - torch's
) -> torch.Tensor:
    """`torch.histc`; between the least and the largest value, if both ends are the same."""
    flat = x.reshape(-1)
    low: float | torch.Tensor = min
    high: float | torch.Tensor = max
    if has_no_ends(x, bins, min, max):
        is_one = flat.amin(0) == flat.amax(0)
        low = torch.where(is_one, flat.amin(0) - 1, flat.amin(0))
        high = torch.where(is_one, flat.amax(0) + 1, flat.amax(0))
    place = ((flat - low) * bins / (high - low)).floor().clamp_max(bins - 1)
    place = torch.where((flat >= low) & (flat <= high), place, -1)
    return (place.unsqueeze(-1) == torch.arange(bins)).sum(0).to(x.dtype)


def has_no_ends(
    x: torch.Tensor,  # noqa: ARG001
    bins: int = 100,  # noqa: ARG001
    min: float = 0,  # noqa: A002 - torch's
    max: float = 0,  # noqa: A002 - torch's
) -> bool:
    """Say whether a histogram's ends are those of its values."""
    return min == max


def triangle_indices(
    row: int, col: int, offset: int = 0, *, upper: bool, **_: object
) -> torch.Tensor:
    """`torch.tril_indices` and `triu_indices`, by how many places each row has."""
    first = torch.arange(row) + offset
    if upper:
        starts = first.clamp(0, col)
        lengths = col - starts
    else:
        lengths = (first + 1).clamp(0, col)
        starts = torch.zeros_like(lengths)
    steps = range(offset, offset + row)
    total = sum(col - min(max(n, 0), col) if upper else min(max(n + 1, 0), col) for n in steps)
    numbers, ends = torch.arange(total), lengths.cumsum(0)
    rows = (numbers.unsqueeze(-1) >= ends).sum(-1)
    columns = numbers - (ends - lengths - starts).index_select(0, rows)
    return torch.stack([rows, columns])


def repeated_indices(repeats: torch.Tensor, *, output_size: int | None = None) -> torch.Tensor:
    """`torch.repeat_interleave` of indices: each as often as `repeats` says."""
    ends = repeats.cumsum(0)
    if output_size is None:
        output_size = repeats.sum().item()
        torch._check(output_size >= 0)  # noqa: SLF001 - torch's documented name
    return (torch.arange(output_size).unsqueeze(-1) >= ends).sum(-1)


def distinct(
    x: torch.Tensor,
    sorted: bool = True,  # noqa: A002, FBT001, FBT002, ARG001 - torch's, which always sorts
    return_inverse: bool = False,  # noqa: FBT001, FBT002, ARG001 - torch returns it either way
    return_counts: bool = False,  # noqa: FBT001, FBT002, ARG001
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`x.unique()`: the values in order, the number of each element's value in the shape of `x`,
    and how often each occurs.
    """
    flat = x.reshape(-1)
    # Sorted as numbers: runtimes do not order bools.
    order = (flat.to(torch.int32) if x.dtype == torch.bool else flat).argsort()
    values, numbers, counts = _runs(flat.index_select(0, order), 0)
    # The places in the order of the places: where each element went.
    return values, numbers.index_select(0, order.argsort()).reshape(x.shape), counts


def distinct_neighbors(
    x: torch.Tensor,
    return_inverse: bool = False,  # noqa: FBT001, FBT002, ARG001 - torch returns it either way
    return_counts: bool = False,  # noqa: FBT001, FBT002, ARG001
    dim: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`x.unique_consecutive()`: the first of each run of equal values, or of equal slices."""
    if dim is not None:
        return _runs(x, dim)
    values, numbers, counts = _runs(x.reshape(-1), 0)
    return values, numbers.reshape(x.shape), counts


def distinct_slices(
    x: torch.Tensor,
    dim: int,
    sorted: bool = True,  # noqa: A002, FBT001, FBT002, ARG001 - torch's, which always sorts
    return_inverse: bool = False,  # noqa: FBT001, FBT002, ARG001 - torch returns it either way
    return_counts: bool = False,  # noqa: FBT001, FBT002, ARG001
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`x.unique(dim=dim)`: slices in the order of their first elements that differ."""
    rows = x.movedim(dim, 0).flatten(1) if x.ndim > 1 else x.unsqueeze(-1)
    rows = rows.to(torch.int32) if x.dtype == torch.bool else rows
    one, other = rows.unsqueeze(1), rows.unsqueeze(0)
    differs = one != other
    decides = differs & (differs.to(torch.int32).cumsum(-1) == 1)
    places = torch.arange(rows.shape[0])
    is_earlier = places.unsqueeze(1) < places
    is_before = (decides & (one < other)).any(-1) | (~differs.any(-1) & is_earlier)
    rank = is_before.sum(0)
    values, numbers, counts = _runs(x.index_select(dim, rank.argsort()), dim)
    return values, numbers.index_select(0, rank), counts


def _runs(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the first of each run of equal slices, each slice's number of run, and how long the
    runs are.
    """
    rows = x.movedim(dim, 0)
    size = rows.shape[0]
    places = torch.arange(size)
    # Not two slices of one less: torch would take their sizes for those of the example.
    is_new = rows != rows.index_select(0, (places - 1).clamp(min=0))
    is_new = is_new.flatten(1).any(-1) if x.ndim > 1 else is_new
    is_first = is_new | (places == 0)
    firsts = is_first.nonzero().squeeze(-1)
    ends = torch.cat([firsts, torch.scalar_tensor(size, dtype=firsts.dtype).reshape(1)])
    counts = ends.narrow(0, 1, firsts.shape[0]) - firsts
    return x.index_select(dim, firsts), is_first.to(firsts.dtype).cumsum(0) - 1, counts
