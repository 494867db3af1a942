"""Eigenvalues of symmetric matrices and singular values, by Jacobi's rotations of disjoint pairs of
axes at once, and what follows from them.

After the first sweeps over all pairs, each squares what is left (G. Golub and C. Van Loan, Matrix
Computations, 8.5). Vectors have no sign of their own: LAPACK's may differ.
"""

import torch

from convkit.worker.exporters.decompositions.matrices.orthogonal_factors import qr

# Each of a sweep's rounds costs two dozen operators.
LARGEST = 8
_SWEEPS = 7


def eigen(
    matrix: torch.Tensor,
    UPLO: str = "L",  # noqa: N803 - torch's
    compute_v: bool = True,  # noqa: FBT001, FBT002, ARG001 - torch's
) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.linalg.eigh` of `(..., n, n)`: ascending values, and vectors in columns."""
    half = matrix.tril(-1) if UPLO.upper() == "L" else matrix.triu(1).mT
    diagonal = torch.eye(matrix.shape[-1], dtype=torch.bool)
    scale, rotated = _scaled(torch.where(diagonal, matrix, half + half.mT))
    vectors = torch.eye(matrix.shape[-1], dtype=matrix.dtype).expand(matrix.shape)
    for partners in _rounds(matrix.shape[-1]):
        found = _picked(rotated, partners)
        # Rounded apart, both sides of the diagonal would turn a pair by different angles.
        between = (found + found.index_select(-1, partners)) / 2
        turn = _turn(_diagonal(rotated), between, partners)
        rotated = _turned(_turned(rotated, turn, partners).mT, turn, partners)
        vectors = _turned(vectors, turn, partners)
    values, order = _diagonal(rotated).sort(-1)
    return values * scale[..., 0], _in_order(vectors, order)


def singular(
    matrix: torch.Tensor,
    full_matrices: bool = False,  # noqa: FBT001, FBT002 - torch's
    compute_uv: bool = True,  # noqa: FBT001, FBT002 - torch's
    *,
    driver: str | None = None,  # noqa: ARG001
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """`torch.linalg.svd` of `(..., m, n)`: columns are rotated until they are orthogonal (Hestenes'
    way, which keeps small values exact), so that their lengths are the values, descending.
    """
    rows, columns = matrix.shape[-2:]
    if rows < columns:
        left, values, right = singular(matrix.mT, full_matrices, compute_uv)
        return right.mT, values, left.mT
    scale, rotated = _scaled(matrix)
    vectors = torch.eye(columns, dtype=matrix.dtype).expand(*matrix.shape[:-2], columns, columns)
    for partners in _rounds(columns):
        between = (rotated * rotated.index_select(-1, partners)).sum(-2)
        turn = _turn(rotated.square().sum(-2), between, partners)
        rotated, vectors = (_turned(each, turn, partners) for each in (rotated, vectors))
    values, order = rotated.square().sum(-2).sqrt().sort(-1, descending=True)
    if not compute_uv:
        return matrix[..., :0], values * scale[..., 0], matrix[..., :0]
    # Where a value is 0, the reflections have a vector that fits to the others.
    left, upper = qr(_in_order(rotated, order), "complete" if full_matrices else "reduced")
    signs = torch.where(_diagonal(upper[..., :columns, :]) < 0, -1, 1).to(matrix.dtype)
    signs = torch.constant_pad_nd(signs, [0, left.shape[-1] - columns], 1)
    return left * signs.unsqueeze(-2), values * scale[..., 0], _in_order(vectors, order).mT


def pseudoinverse(
    matrix: torch.Tensor,
    *,
    atol: torch.Tensor | None = None,
    rtol: torch.Tensor | None = None,
    hermitian: bool = False,  # noqa: ARG001 - such a matrix has singular values, too
) -> torch.Tensor:
    """`torch.linalg.pinv` of `(..., m, n)`: values below torch's tolerance count as 0."""
    left, values, right = singular(matrix)
    usual = max(matrix.shape[-2:]) * torch.finfo(matrix.dtype).eps if atol is None else 0.0
    tolerance = (usual if rtol is None else rtol) * values[..., :1]
    if atol is not None:
        tolerance = torch.maximum(tolerance, torch.as_tensor(atol).to(matrix.dtype))
    is_kept = values > tolerance
    inverse = torch.where(is_kept, torch.where(is_kept, values, 1.0).reciprocal(), 0.0)
    return (right.mT * inverse.unsqueeze(-2)) @ left.mT


def _rounds(size: int) -> list[torch.Tensor]:
    """Return the partner of each axis, round by round: each pair meets once in a sweep, as in a
    tournament. One that is left over is its own.
    """
    places, turning = torch.arange(size), size - 1 + size % 2
    rounds = []
    for step in range(turning):
        partners = torch.remainder(step - places, max(turning, 1))
        if turning < size:  # the last axis meets the one that is left over
            left_over = step * (turning + 1) // 2 % turning
            partners = torch.where(places == turning, left_over, partners)
            partners = torch.where(places == left_over, turning, partners)
        rounds.append(partners)
    return rounds * _SWEEPS


def _scaled(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the size of the largest element, and the matrix in units of it: squares stay small."""
    largest = matrix.abs().amax((-2, -1), keepdim=True)
    scale = torch.where(largest == 0, 1.0, largest)
    return scale, matrix / scale


def _turn(
    own: torch.Tensor, between: torch.Tensor, partners: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each axis's share of itself and of its partner, after the smaller rotation that makes
    `between` zero; `own` are the elements of the diagonal.
    """
    places = torch.arange(partners.shape[0])
    apart = own.index_select(-1, partners) - own
    twice = torch.where(partners == places, 0, 2 * between)
    positive = (apart > 0) | ((apart == 0) & (places < partners))
    length = apart.abs() + (apart * apart + twice * twice).sqrt()
    tangent = twice / torch.where(length == 0, 1.0, length)
    tangent = torch.where(positive, tangent, -tangent)
    cosine = (tangent * tangent + 1).sqrt().reciprocal()
    return cosine.unsqueeze(-2), (-tangent * cosine).unsqueeze(-2)


def _turned(
    columns: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor], partners: torch.Tensor
) -> torch.Tensor:
    return columns * turn[0] + columns.index_select(-1, partners) * turn[1]


def _diagonal(matrix: torch.Tensor) -> torch.Tensor:
    return _picked(matrix, torch.arange(matrix.shape[-1]))


def _picked(matrix: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Return one element of each row."""
    is_there = places.unsqueeze(-1) == torch.arange(matrix.shape[-1])
    return torch.where(is_there, matrix, 0).sum(-1)


def _in_order(columns: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    return columns.gather(-1, order.unsqueeze(-2).expand(columns.shape))
