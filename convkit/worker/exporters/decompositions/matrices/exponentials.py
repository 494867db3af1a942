"""The exponential of a matrix, by a Taylor polynomial of a part of it that is squared again."""

import torch

# x^n / n! of norms up to 1 is below the last place of float32 from here on.
_TERMS = 12
# Of norms up to 2^24 ≈ 1.7e7.
_SQUARINGS = 24


def exponential(matrix: torch.Tensor) -> torch.Tensor:
    """`torch.matrix_exp` of `(..., n, n)`."""
    norm = matrix.abs().sum(-2).amax(-1)
    parts, halvings = torch.ones_like(norm), list[torch.Tensor]()
    for _ in range(_SQUARINGS):
        halvings.append(norm * parts > 1)
        parts = torch.where(halvings[-1], parts / 2, parts)
    part = matrix * parts[..., None, None]
    unit = torch.eye(matrix.shape[-1], dtype=matrix.dtype)
    found = unit + part / _TERMS
    for term in range(_TERMS - 1, 0, -1):
        found = unit + part @ found / term
    for is_halved in halvings:
        found = torch.where(is_halved[..., None, None], found @ found, found)
    return found
