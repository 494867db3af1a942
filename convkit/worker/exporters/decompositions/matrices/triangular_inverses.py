"""Inverses of triangular matrices of a fixed size, in blocks that double: a dozen operators for
each doubling, where substitution takes some for each row.

With the inverses of both blocks on the diagonal, that of `[[A, 0], [B, C]]` is
`[[A^-1, 0], [-C^-1 B A^-1, C^-1]]` (Golub and Van Loan, Matrix Computations, 4th ed., 3.1).
"""

import torch

# Intermediate results have as many elements as the matrix.
LARGEST = 1024


def inverse(matrix: torch.Tensor, *, upper: bool, unitriangular: bool) -> torch.Tensor:
    """Return the inverse of the `upper` or lower triangle of a matrix; what is on the other side is
    not read, nor is the diagonal of a unitriangular one.
    """
    if upper:
        return inverse(matrix.mT, upper=False, unitriangular=unitriangular).mT
    size = matrix.shape[-1]
    whole = 1 << (size - 1).bit_length()
    padding = whole - size
    padded = torch.constant_pad_nd(matrix, [0, padding, 0, padding])
    diagonal = torch.ones_like(matrix[..., 0]) if unitriangular else _diagonal(matrix)
    found = (1 / torch.constant_pad_nd(diagonal, [0, padding], 1.0))[..., None, None]
    width = 1
    while width < whole:
        found = _doubled(found, padded, width)
        width *= 2
    return found[..., 0, :size, :size]


def _doubled(blocks: torch.Tensor, matrix: torch.Tensor, width: int) -> torch.Tensor:
    """Return the inverses of the blocks of twice the width on the diagonal of a matrix, `(..., m/2,
    2w, 2w)`, from those of the blocks of a width, `(..., m, w, w)`.
    """
    batch, count = matrix.shape[:-2], matrix.shape[-1] // (2 * width)
    pairs = blocks.reshape(*batch, count, 2, width, width)
    first, second = pairs[..., 0, :, :], pairs[..., 1, :, :]
    tiles = matrix.reshape(*batch, count, 2 * width, count, 2 * width)[..., width:, :, :width]
    on_diagonal = torch.eye(count, dtype=torch.bool)[:, None, :, None]
    below = torch.where(on_diagonal, tiles, 0.0).sum(-2)
    lower = torch.cat([-(second @ below @ first), second], -1)
    upper = torch.cat([first, torch.zeros_like(first)], -1)
    return torch.cat([upper, lower], -2)


def _diagonal(matrix: torch.Tensor) -> torch.Tensor:
    on_diagonal = torch.eye(matrix.shape[-1], dtype=torch.bool)
    return torch.where(on_diagonal, matrix, 0.0).sum(-1)
