"""Triangular factors of small matrices of a fixed size, written out with partial pivoting, as
LAPACK's `getrf`; and the systems that they solve.
"""

import torch

from convkit.worker.exporters.decompositions.matrices.elimination import triangular_solution


def factors(
    matrix: torch.Tensor, *, pivot: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`torch.linalg.lu`: P, L and U of `matrix = P @ L @ U`."""
    packed, pivots = _packed(matrix, pivot=pivot)
    return unpacked(packed, pivots)


def packed_factors(
    matrix: torch.Tensor, *, pivot: bool = True
) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.linalg.lu_factor`."""
    return _packed(matrix, pivot=pivot)


def checked_factors(
    matrix: torch.Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`torch.linalg.lu_factor_ex`: both factors in one matrix, the rows that were exchanged,
    counted from 1, and the number of the first pivot that is 0.
    """
    del check_errors
    packed, pivots = _packed(matrix, pivot=pivot)
    diagonal = _diagonal(packed)
    numbers = torch.arange(1, diagonal.shape[-1] + 1)
    beyond = diagonal.shape[-1] + 1
    first = torch.where(diagonal == 0, numbers, beyond).amin(-1)
    return packed, pivots, torch.where(first == beyond, 0, first).to(torch.int32)


def unpacked(
    packed: torch.Tensor,
    pivots: torch.Tensor,
    unpack_data: bool = True,  # noqa: FBT001, FBT002 - torch's
    unpack_pivots: bool = True,  # noqa: FBT001, FBT002 - torch's
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`torch.lu_unpack`: P, L and U."""
    rows, columns = packed.shape[-2:]
    count = min(rows, columns)
    nothing = packed[..., :0, 0]
    lower = upper = order = nothing
    if unpack_data:
        unit = torch.eye(rows, count, dtype=packed.dtype)
        lower, upper = packed[..., :count].tril(-1) + unit, packed[..., :count, :].triu()
    if unpack_pivots:
        unit = torch.eye(rows, dtype=packed.dtype).expand(*packed.shape[:-2], rows, rows)
        order = _exchanged(unit, pivots).mT
    return order, lower, upper


def solution(
    packed: torch.Tensor,
    pivots: torch.Tensor,
    given: torch.Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> torch.Tensor:
    """`torch.linalg.lu_solve`: X of `A @ X = given`, of `A.mT @ X = given` if `adjoint`, or with X
    in front if not `left`.
    """
    if not left:
        return solution(packed, pivots, given.mT, adjoint=not adjoint).mT
    if not adjoint:
        half = triangular_solution(
            packed, _exchanged(given, pivots), upper=False, unitriangular=True
        )
        return triangular_solution(packed, half, upper=True)
    half = triangular_solution(packed.mT, given, upper=False)
    found = triangular_solution(packed.mT, half, upper=True, unitriangular=True)
    return _exchanged(found, pivots, is_back=True)


def _packed(matrix: torch.Tensor, *, pivot: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both factors in one matrix, and the row that each step exchanged, from 1."""
    rows, columns = torch.arange(matrix.shape[-2]).unsqueeze(-1), torch.arange(matrix.shape[-1])
    chosen = list[torch.Tensor]()
    for step in range(min(matrix.shape[-2:])):
        here = torch.full((*matrix.shape[:-2], 1), step, dtype=torch.int64)
        if pivot:
            here = matrix[..., step:, step].abs().argmax(-1, keepdim=True) + step
        chosen.append(here)
        matrix = _with_exchange(matrix, step, here)
        row = matrix[..., step : step + 1, :]
        divisor = row[..., step : step + 1]
        shares = matrix[..., step : step + 1] / torch.where(divisor == 0, 1.0, divisor)
        shares = torch.where(rows > step, shares, 0.0)
        rest = matrix - torch.where(columns > step, row, 0.0) * shares
        matrix = torch.where((rows > step) & (columns == step), shares, rest)
    return matrix, torch.cat(chosen, -1).to(torch.int32) + 1


def _exchanged(x: torch.Tensor, pivots: torch.Tensor, *, is_back: bool = False) -> torch.Tensor:
    """Exchange rows as factors did, or the other way round."""
    steps = range(pivots.shape[-1])
    for step in reversed(steps) if is_back else steps:
        x = _with_exchange(x, step, pivots[..., step : step + 1] - 1)
    return x


def _with_exchange(x: torch.Tensor, step: int, other: torch.Tensor) -> torch.Tensor:
    places = torch.arange(x.shape[-2])
    is_other = (places == other).unsqueeze(-1)
    row = torch.where(is_other, x, 0.0).sum(-2, keepdim=True)
    x = torch.where(is_other, x[..., step : step + 1, :], x)
    return torch.where((places == step).unsqueeze(-1), row, x)


def _diagonal(matrix: torch.Tensor) -> torch.Tensor:
    count = min(matrix.shape[-2:])
    return torch.stack([matrix[..., place, place] for place in range(count)], -1)
