"""Indices and counts that coremltools has no translation for."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from convkit.worker.exporters.decompositions import placed_values


def index_decompositions() -> dict[Any, Callable[..., object]]:
    """Return the decompositions by operator."""
    aten = torch.ops.aten
    return {
        aten.bincount.default: _counts,
        aten.masked_scatter.default: placed_values.masked_scatter,
        aten.tril_indices.default: partial(_triangle, upper=False),
        aten.triu_indices.default: partial(_triangle, upper=True),
    }


def _counts(
    x: torch.Tensor, weights: torch.Tensor | None = None, minlength: int = 0
) -> torch.Tensor:
    """`torch.bincount`, of as many numbers as the largest asks for."""
    count = torch.clamp_min(x.amax() + 1, minlength).item()
    torch._check(count >= 0)  # noqa: SLF001 - torch's documented name
    is_number = x.unsqueeze(-1) == torch.arange(count)
    if weights is None:
        return is_number.sum(0)
    return torch.where(is_number, weights.unsqueeze(-1), 0).sum(0)


def _triangle(row: int, col: int, offset: int = 0, *, upper: bool, **_: object) -> torch.Tensor:
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
