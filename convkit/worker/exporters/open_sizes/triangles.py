"""Where the elements of a square's triangle are, of which torch has as many as in the trace. Those
without the diagonal stay torch's: one element is a size that torch.export asks for.
"""

from typing import Any

import torch


def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    **options: Any,  # noqa: ANN401 - torch's
) -> torch.Tensor:
    """`torch.tril_indices`: shape (2, elements), row by row."""
    if offset or not _is_open(row, col):
        return torch.tril_indices(row, col, offset, **options)
    return torch.stack(_lower(row)).to(**_type_of(options))


def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    **options: Any,  # noqa: ANN401 - torch's
) -> torch.Tensor:
    """`torch.triu_indices`: the lower triangle's from its end, seen from the far corner."""
    if offset or not _is_open(row, col):
        return torch.triu_indices(row, col, offset, **options)
    mirrored = [row - 1 - each.flip(0) for each in _lower(row)]
    return torch.stack(mirrored).to(**_type_of(options))


def _is_open(row: int, col: int) -> bool:
    is_open = isinstance(row, torch.SymInt) or isinstance(col, torch.SymInt)
    return is_open and bool(row == col)


def _type_of(options: dict[str, Any]) -> dict[str, Any]:
    return {"dtype": options.get("dtype") or torch.int64}


def _lower(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the rows and columns of a square's lower triangle with its diagonal: row r begins at
    element r (r + 1) / 2. A root that is rounded is off by one at most.
    """
    place = torch.arange(size * (size + 1) // 2)
    rows = (((8 * place + 1).float().sqrt() - 1) / 2).to(torch.int64)
    rows = rows - (_start(rows) > place).long() + (_start(rows + 1) <= place).long()
    return rows, place - _start(rows)


def _start(rows: torch.Tensor) -> torch.Tensor:
    return torch.div(rows * (rows + 1), 2, rounding_mode="floor")
