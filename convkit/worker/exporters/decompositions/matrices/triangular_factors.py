"""LU factors of small matrices, pivoted by rows as LAPACK does, and what is solved with them."""

import torch

from convkit.worker.exporters.decompositions.matrices.elimination import triangular_solution


def checked_factors(
    matrix: torch.Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`torch.linalg.lu_factor_ex` of `(..., m, n)`: both factors in one matrix, the row that each
    step exchanged with its own, counted from 1, and the first step without a pivot, or 0.
    """
    del check_errors
    height, width = matrix.shape[-2:]
    places, columns = torch.arange(height), torch.arange(width)
    rows, exchanged, missing = matrix, list[torch.Tensor](), list[torch.Tensor]()
    for step in range(min(height, width)):
        column = rows[..., step:, step]
        chosen = (
            column.abs().argmax(-1, keepdim=True)
            if pivot
            else torch.zeros_like(column[..., :1], dtype=torch.int64)
        )
        chosen = chosen + step
        is_chosen, is_here = (
            (places == each).unsqueeze(-1) for each in (chosen, torch.full_like(chosen, step))
        )
        row = torch.where(is_chosen, rows, 0).sum(-2, keepdim=True)
        rows = torch.where(is_chosen, rows[..., step : step + 1, :], rows)
        rows = torch.where(is_here, row, rows)
        first = row[..., step : step + 1]
        is_missing = first == 0
        factors = rows[..., :, step : step + 1] / torch.where(is_missing, 1, first)
        is_below = (places > step).unsqueeze(-1)
        reduced = torch.where(columns == step, factors, rows - factors * row)
        rows = torch.where(is_below & (columns >= step), reduced, rows)
        exchanged.append(chosen + 1)
        missing.append(torch.where(is_missing[..., 0, 0], step + 1, 0))
    info = missing[0]
    for each in missing[1:]:
        info = torch.where(info == 0, each, info)
    return rows, torch.cat(exchanged, -1).to(torch.int32), info.to(torch.int32)


def factors(
    matrix: torch.Tensor, *, pivot: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`torch.linalg.lu`: a permutation, and the lower and the upper factor."""
    both, exchanged, _ = checked_factors(matrix, pivot=pivot)
    permutation, lower, upper = unpacked(both, exchanged)
    return (permutation if pivot else matrix.new_zeros((0,))), lower, upper


def unpacked(
    both: torch.Tensor,
    exchanged: torch.Tensor,
    unpack_data: bool = True,  # noqa: FBT001, FBT002 - torch's
    unpack_pivots: bool = True,  # noqa: FBT001, FBT002 - torch's
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`torch.lu_unpack`."""
    count = min(both.shape[-2:])
    nothing = both.new_zeros((0,))
    lower = upper = permutation = nothing
    if unpack_data:
        unit = torch.eye(both.shape[-2], count, dtype=both.dtype)
        lower = both[..., :, :count].tril(-1) + unit
        upper = both[..., :count, :].triu()
    if unpack_pivots:
        permutation = _permutation(exchanged, both.shape[-2]).mT.to(both.dtype)
    return permutation, lower, upper


def solution_by_factors(
    both: torch.Tensor,
    exchanged: torch.Tensor,
    given: torch.Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
) -> torch.Tensor:
    """`torch.linalg.lu_solve`."""
    if not left:
        return solution_by_factors(both, exchanged, given.mH, adjoint=not adjoint).mH
    batch = torch.broadcast_shapes(both.shape[:-2], given.shape[:-2])
    both = both.expand(*batch, *both.shape[-2:])
    given = given.expand(*batch, *given.shape[-2:])
    rows = _permutation(exchanged, both.shape[-1]).to(both.dtype)
    if adjoint:
        half = triangular_solution(both.mH, given, upper=False)
        return rows.mT @ triangular_solution(both.mH, half, upper=True, unitriangular=True)
    half = triangular_solution(both, rows @ given, upper=False, unitriangular=True)
    return triangular_solution(both, half, upper=True)


def transposed_solution(
    given: torch.Tensor,
    matrix: torch.Tensor,
    upper: bool = True,  # noqa: FBT001, FBT002 - torch's
    transpose: bool = False,  # noqa: FBT001, FBT002 - torch's
    unitriangular: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.triangular_solve`: the solution, and the matrix."""
    turned = matrix.mT if transpose else matrix
    found = triangular_solution(
        turned, given, upper=upper != transpose, unitriangular=unitriangular
    )
    return found, matrix.clone()


def _permutation(exchanged: torch.Tensor, size: int) -> torch.Tensor:
    """Return the matrix that puts rows in the order in which pivots chose them, as bools: in each
    row, the column it comes from.
    """
    places = torch.arange(size)
    order = places.expand(*exchanged.shape[:-1], size)
    for step in range(exchanged.shape[-1]):
        chosen = exchanged[..., step : step + 1] - 1
        here = order[..., step : step + 1]
        there = torch.where(places == chosen, order, 0).sum(-1, keepdim=True)
        order = torch.where(places == chosen, here, order)
        order = torch.where(places == step, there, order)
    return order.unsqueeze(-1) == places
