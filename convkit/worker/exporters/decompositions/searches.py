"""Searches, by comparing each value with all of a row."""

import torch


def bucketize(
    values: torch.Tensor, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False
) -> torch.Tensor:
    """`torch.bucketize`: how many boundaries lie below. NaN lies above all of them."""
    values = values.unsqueeze(-1)
    lies_below = ~(boundaries > values) if right else ~(boundaries >= values)
    return lies_below.sum(-1, dtype=torch.int32 if out_int32 else torch.int64)


def searchsorted(
    boundaries: torch.Tensor,
    values: torch.Tensor,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    """`torch.searchsorted`, in one row of boundaries or in one for each row of values."""
    if sorter is not None:
        boundaries = boundaries.gather(-1, sorter)
    if boundaries.ndim > 1:
        boundaries = boundaries.unsqueeze(-2)
    return bucketize(values, boundaries, out_int32=out_int32, right=right or side == "right")


def isin(
    elements: torch.Tensor,
    test_elements: torch.Tensor,
    *,
    assume_unique: bool = False,  # noqa: ARG001
    invert: bool = False,
) -> torch.Tensor:
    """`torch.isin`."""
    found = (elements.unsqueeze(-1) == test_elements.reshape(-1)).any(-1)
    return ~found if invert else found


def bucket_of_number(
    value: float, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False
) -> torch.Tensor:
    """`torch.bucketize` of a plain number."""
    return bucketize(_alone(value, boundaries), boundaries, out_int32=out_int32, right=right)


def place_of_number(
    boundaries: torch.Tensor,
    value: float,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    """`torch.searchsorted` of a plain number."""
    return searchsorted(
        boundaries,
        _alone(value, boundaries),
        out_int32=out_int32,
        right=right,
        side=side,
        sorter=sorter,
    )


def _alone(value: float, boundaries: torch.Tensor) -> torch.Tensor:
    return torch.scalar_tensor(value, dtype=torch.result_type(boundaries, value))
