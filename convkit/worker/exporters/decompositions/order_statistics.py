"""Stable sorts, medians and the k-th value, by sorting. A NaN counts as the largest value, as in
torch; it is taken out before the sort, because runtimes order NaN each in their own way.
"""

import math

import torch


def stable_sort(
    values: torch.Tensor,
    *,
    stable: bool | None = None,  # noqa: ARG001 - ONNX's TopK is stable by its definition
    dim: int = -1,
    descending: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """`x.sort(stable=...)`, which neither ONNX nor ML programs know, as `x.sort()`."""
    found = torch.sort(values, dim, descending)
    return found.values, found.indices


def stable_order(
    values: torch.Tensor, *, stable: bool, dim: int = -1, descending: bool = False
) -> torch.Tensor:
    """`x.argsort(stable=True)`."""
    return stable_sort(values, stable=stable, dim=dim, descending=descending)[1]


def median(values: torch.Tensor) -> torch.Tensor:
    """`x.median()`."""
    return median_along(values.reshape(-1), 0)[0]


def nanmedian(values: torch.Tensor) -> torch.Tensor:
    """`x.nanmedian()`."""
    return nanmedian_along(values.reshape(-1), 0)[0]


def median_along(
    values: torch.Tensor,
    dim: int,
    keepdim: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> tuple[torch.Tensor, torch.Tensor]:
    """`x.median(dim)`: the lower of two in the middle; NaN if there is one."""
    missing = _is_nan(values)
    found, places = _taken(values, (values.shape[dim] - 1) // 2, dim)
    if missing is not None:
        any_missing = missing.sum(dim, keepdim=True) > 0
        first = missing.to(torch.int32).argmax(dim, keepdim=True)
        found = torch.where(any_missing, torch.nan, found)
        places = torch.where(any_missing, first, places)
    return _kept(found, places, dim, keepdim=keepdim)


def nanmedian_along(
    values: torch.Tensor,
    dim: int,
    keepdim: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> tuple[torch.Tensor, torch.Tensor]:
    """`x.nanmedian(dim)`: the median of the others; NaN if there are none."""
    missing = _is_nan(values)
    if missing is None:
        return median_along(values, dim, keepdim)
    ordered, places = _sorted(values, missing, dim)
    count = (~missing).sum(dim, keepdim=True)
    middle = ((count - 1) // 2).clamp_min(0)
    found = torch.where(count > 0, ordered.gather(dim, middle), torch.nan)
    return _kept(found, places.gather(dim, middle), dim, keepdim=keepdim)


def kth_value(
    values: torch.Tensor,
    k: int,
    dim: int = -1,
    keepdim: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> tuple[torch.Tensor, torch.Tensor]:
    """`x.kthvalue(k, dim)`."""
    missing = _is_nan(values)
    found, places = _taken(values, k - 1, dim)
    if missing is not None:
        count = (~missing).sum(dim, keepdim=True)
        found = torch.where(count >= k, found, torch.nan)
    return _kept(found, places, dim, keepdim=keepdim)


def quantile(
    values: torch.Tensor,
    q: float,
    dim: int | None = None,
    keepdim: bool = False,  # noqa: FBT001, FBT002 - torch's
    *,
    interpolation: str = "linear",
) -> torch.Tensor:
    """`torch.quantile` of one q along a fixed size; NaN if there is one."""
    if dim is None:
        found = quantile(values.reshape(-1), q, 0, interpolation=interpolation)
        return found.reshape([1] * values.ndim) if keepdim else found
    place = q * (values.shape[dim] - 1)
    low, high = math.floor(place), math.ceil(place)
    missing = _is_nan(values)
    ordered, _ = _sorted(values, missing, dim)

    def at(number: int) -> torch.Tensor:
        return ordered.narrow(dim, number, 1)

    if interpolation == "nearest":
        found = at(round(place))
    else:
        found = _between(at(low), at(high), place - low, interpolation)
    if missing is not None:
        found = torch.where(missing.sum(dim, keepdim=True) > 0, torch.nan, found)
    return found if keepdim else found.squeeze(dim)


def nanquantile(
    values: torch.Tensor,
    q: float | torch.Tensor,
    dim: int | None = None,
    keepdim: bool = False,  # noqa: FBT001, FBT002 - torch's
    *,
    interpolation: str = "linear",
) -> torch.Tensor:
    """`torch.nanquantile` of one q: the quantile of the others; NaN if there are none."""
    if dim is None:
        found = nanquantile(values.reshape(-1), q, 0, interpolation=interpolation)
        return found.reshape([1] * values.ndim) if keepdim else found
    missing = values != values  # noqa: PLR0124 - true for NaN
    count = (~missing).sum(dim, keepdim=True)
    place = q * (count - 1).to(values.dtype)
    low, high = place.floor(), place.ceil()
    ordered, _ = _sorted(values, missing, dim)

    def at(places: torch.Tensor) -> torch.Tensor:
        return ordered.gather(dim, places.to(torch.int64).clamp_min(0))

    if interpolation == "nearest":
        found = at(place.round())
    else:
        found = _between(at(low), at(high), place - low, interpolation)
    found = torch.where(count > 0, found, torch.nan)
    return found if keepdim else found.squeeze(dim)


def nanquantiles(
    values: torch.Tensor,
    q: torch.Tensor,
    dim: int | None = None,
    keepdim: bool = False,  # noqa: FBT001, FBT002 - torch's
    *,
    interpolation: str = "linear",
) -> torch.Tensor:
    """`torch.nanquantile` of a tensor of q, one after the other along a first dimension."""
    if q.ndim == 0:
        return nanquantile(values, q, dim, keepdim, interpolation=interpolation)
    return torch.stack(
        [nanquantile(values, each, dim, keepdim, interpolation=interpolation) for each in q]
    )


def _between(
    low: torch.Tensor, high: torch.Tensor, share: float | torch.Tensor, interpolation: str
) -> torch.Tensor:
    """Return a quantile from the values on both sides of its place, `share` of the way apart."""
    match interpolation:
        case "linear":
            return torch.lerp(low, high, share)
        case "midpoint":
            return torch.lerp(low, high, 0.5)
        case "higher":
            return high
        case _:
            return low


def has_fixed_size(values: torch.Tensor, q: object, dim: int | None = None, *_: object) -> bool:
    """Say whether a quantile's place among the sorted values is known."""
    sizes = values.shape if dim is None else (values.shape[dim],)
    return isinstance(q, float | int) and all(isinstance(size, int) for size in sizes)


def _is_nan(values: torch.Tensor) -> torch.Tensor | None:
    return values != values if values.is_floating_point() else None  # noqa: PLR0124 - true for NaN


def _taken(values: torch.Tensor, place: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what is at a place in the sorted values, with its index, along a dimension."""
    ordered, places = _sorted(values, _is_nan(values), dim)
    return ordered.narrow(dim, place, 1), places.narrow(dim, place, 1)


def _sorted(
    values: torch.Tensor, missing: torch.Tensor | None, dim: int
) -> tuple[torch.Tensor, torch.Tensor]:
    if missing is not None:
        values = torch.where(missing, torch.inf, values)
    return values.sort(dim)


def _kept(
    found: torch.Tensor, places: torch.Tensor, dim: int, *, keepdim: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    return (found, places) if keepdim else (found.squeeze(dim), places.squeeze(dim))
