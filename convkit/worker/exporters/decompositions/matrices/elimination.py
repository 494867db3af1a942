"""Linear algebra on small matrices of a fixed size, written out: Gauss-Jordan elimination with
partial pivoting, as LAPACK pivots. Matrices may be complex.

A singular matrix, of which torch refuses the inverse, gives infinities or NaN.
"""

import math

import torch
from torch.fx.experimental.symbolic_shapes import statically_known_true

from convkit.worker.exporters.decompositions.matrices import triangular_inverses

# Each row costs a dozen operators.
LARGEST = 16


def inverse(matrix: torch.Tensor) -> torch.Tensor:
    """`torch.linalg.inv`."""
    size = matrix.shape[-1]
    unit = torch.eye(size, dtype=matrix.dtype).expand(matrix.shape)
    return _eliminated(matrix, unit)[0]


def solution(matrix: torch.Tensor, given: torch.Tensor, *, left: bool = True) -> torch.Tensor:
    """`torch.linalg.solve`: X of `matrix @ X = given`, or of `X @ matrix = given`."""
    is_vector = given.ndim == 1 or (
        given.ndim == matrix.ndim - 1 and tuple(given.shape) == tuple(matrix.shape[:-1])
    )
    columns = given.unsqueeze(-1) if is_vector else given
    if not left:
        matrix, columns = matrix.mT, columns if is_vector else columns.mT
    if not _have_same_batch(matrix, columns):
        batch = torch.broadcast_shapes(matrix.shape[:-2], columns.shape[:-2])
        matrix = matrix.expand(*batch, *matrix.shape[-2:])
        columns = columns.expand(*batch, *columns.shape[-2:])
    found, _ = _eliminated(matrix, columns)
    if is_vector:
        return found.squeeze(-1)
    return found if left else found.mT


def determinant(matrix: torch.Tensor) -> torch.Tensor:
    """`torch.linalg.det`; 0 for a singular matrix."""
    return _product(_eliminated(matrix, matrix[..., :0], may_be_singular=True)[1])


def sign_and_logarithm(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.linalg.slogdet`."""
    _, pivots = _eliminated(matrix, matrix[..., :0], may_be_singular=True)
    logarithm = torch.stack([pivot.abs().log() for pivot in pivots]).sum(0)
    return _product([pivot.sgn() for pivot in pivots]), logarithm


def logarithm(matrix: torch.Tensor) -> torch.Tensor:
    """`torch.logdet`: NaN for a negative determinant."""
    sign, found = sign_and_logarithm(matrix)
    return torch.where(sign < 0, math.nan, found)


def cholesky(matrix: torch.Tensor, *, upper: bool = False) -> torch.Tensor:
    """`torch.linalg.cholesky`, column by column."""
    rest, columns = matrix, list[torch.Tensor]()
    for _ in range(matrix.shape[-1]):
        column = rest[..., :, :1] / torch.real(rest[..., :1, :1]).sqrt()
        columns.append(torch.constant_pad_nd(column, [0, 0, len(columns), 0]))
        below = column[..., 1:, :]
        rest = rest[..., 1:, 1:] - below * below.mH
    factor = torch.cat(columns, -1)
    return factor.mH if upper else factor


def cholesky_factor(
    matrix: torch.Tensor,
    upper: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> torch.Tensor:
    """`torch.cholesky`."""
    return cholesky(matrix, upper=upper)


def triangular_solution(
    matrix: torch.Tensor,
    given: torch.Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> torch.Tensor:
    """`torch.linalg.solve_triangular`: of small matrices by substitution, row by row."""
    if not left:
        found = triangular_solution(
            matrix.mT, given.mT, upper=not upper, unitriangular=unitriangular
        )
        return found.mT
    size = matrix.shape[-1]
    if size > LARGEST:
        return triangular_inverses.inverse(matrix, upper=upper, unitriangular=unitriangular) @ given
    rows: dict[int, torch.Tensor] = {}
    for row in reversed(range(size)) if upper else range(size):
        found = given[..., row : row + 1, :]
        for other, known in rows.items():
            found = found - matrix[..., row : row + 1, other : other + 1] * known
        pivot = matrix[..., row : row + 1, row : row + 1]
        rows[row] = found if unitriangular else found / pivot
    return torch.cat([rows[row] for row in range(size)], -2)


def solution_by_factor(
    given: torch.Tensor,
    factor: torch.Tensor,
    upper: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> torch.Tensor:
    """`torch.cholesky_solve`."""
    lower = factor.mH if upper else factor
    if lower.shape[-1] > LARGEST:
        inverted = triangular_inverses.inverse(lower, upper=False, unitriangular=False)
        return inverted.mH @ (inverted @ given)
    half = triangular_solution(lower, given, upper=False)
    return triangular_solution(lower.mH, half, upper=True)


def inverse_by_factor(
    factor: torch.Tensor,
    upper: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> torch.Tensor:
    """`torch.cholesky_inverse`."""
    unit = torch.eye(factor.shape[-1], dtype=factor.dtype).expand(factor.shape)
    return solution_by_factor(unit, factor, upper)


def checked_inverse(
    matrix: torch.Tensor, *, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.linalg.inv_ex`, of matrices that are not singular."""
    del check_errors
    return inverse(matrix), torch.zeros(matrix.shape[:-2], dtype=torch.int32)


def checked_solution(
    matrix: torch.Tensor, given: torch.Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.linalg.solve_ex`, of matrices that are not singular."""
    del check_errors
    found = solution(matrix, given, left=left)
    return found, torch.zeros(matrix.shape[:-2], dtype=torch.int32)


def checked_cholesky(
    matrix: torch.Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.linalg.cholesky_ex`, of matrices that are positive definite."""
    del check_errors
    return cholesky(matrix, upper=upper), torch.zeros(matrix.shape[:-2], dtype=torch.int32)


def _have_same_batch(one: torch.Tensor, other: torch.Tensor) -> bool:
    return one.ndim == other.ndim and all(
        statically_known_true(size == wanted)
        for size, wanted in zip(one.shape[:-2], other.shape[:-2], strict=True)
    )


def _eliminated(
    matrix: torch.Tensor, right: torch.Tensor, *, may_be_singular: bool = False
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Return the solution of `matrix @ X = right`, and the pivots, negative for each exchange of
    rows. A matrix that `may_be_singular` has right pivots, and then no solution.
    """
    size = matrix.shape[-1]
    rows = torch.cat([matrix, right], -1)
    places = torch.arange(size)
    pivots = []
    for step in range(size):
        candidates = rows[..., step:, step].abs()
        chosen = candidates.argmax(-1, keepdim=True) + step
        is_chosen = (places == chosen).unsqueeze(-1)
        is_here = (places == step).unsqueeze(-1)
        nothing = torch.zeros((), dtype=rows.dtype)
        row = torch.where(is_chosen, rows, nothing).sum(-2, keepdim=True)
        rows = torch.where(is_chosen, rows[..., step : step + 1, :], rows)
        pivot = row[..., step : step + 1]
        own = pivot[..., 0, 0]
        pivots.append(torch.where(chosen[..., 0] != step, -own, own))
        if may_be_singular:  # below a pivot of 0 there is nothing to eliminate
            pivot = torch.where(pivot == 0, 1.0, pivot)
        scaled = row / pivot
        rows = torch.where(is_here, scaled, rows - rows[..., :, step : step + 1] * scaled)
    return rows[..., size:], pivots


def _product(factors: list[torch.Tensor]) -> torch.Tensor:
    found = factors[0]
    for factor in factors[1:]:
        found = found * factor
    return found
