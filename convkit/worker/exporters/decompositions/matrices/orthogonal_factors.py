"""QR factors of small matrices, by Householder's reflections with LAPACK's signs, and least squares
by them.
"""

import torch

from convkit.worker.exporters.decompositions.matrices.elimination import triangular_solution


def qr(matrix: torch.Tensor, mode: str = "reduced") -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.linalg.qr` of `(..., m, n)`: a column that has nothing below its diagonal is not
    reflected, and every other one onto the side away from its first element (LAPACK, dlarfg).
    """
    rows, columns = matrix.shape[-2:]
    reflections, rest, finished = list[torch.Tensor](), matrix, list[torch.Tensor]()
    count = min(rows, columns)
    for step in range(count):
        if step < rows - 1:
            reflections.append(_reflection(rest[..., :, 0]))
            rest = _reflected(reflections[-1], rest)
        # What is below the diagonal is zero but for rounding.
        finished.append(torch.constant_pad_nd(rest[..., :1, :], [step, 0]))
        if step < count - 1:
            rest = rest[..., 1:, 1:]
    if mode == "r":
        return matrix.new_zeros((0,)), torch.cat(finished, -2)
    width = rows if mode == "complete" else count
    if mode == "complete" and rows > count:
        finished.append(torch.zeros_like(matrix[..., count:, :]))
    unit = torch.eye(rows, width, dtype=matrix.dtype).expand(*matrix.shape[:-2], rows, width)
    return _applied(reflections, unit), torch.cat(finished, -2)


def packed_qr(matrix: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """`torch.geqrf`: the upper factor, with the reflections' vectors below its diagonal, and their
    scales.
    """
    rows, columns = matrix.shape[-2:]
    rest, scales, finished = matrix, list[torch.Tensor](), list[torch.Tensor]()
    places = torch.arange(rows)
    for step in range(min(rows, columns)):
        vector, scale = _reflection(rest[..., step:, 0])
        rest = _below(step, rest, (vector, scale))
        below = torch.constant_pad_nd(vector[..., 0], [step, 0])
        finished.append(torch.where(places > step, below, rest[..., 0]))
        scales.append(scale[..., 0, 0])
        rest = rest[..., 1:]
    packed = torch.stack(finished, -1)
    return torch.cat([packed, rest], -1), torch.stack(scales, -1)


def times_reflections(
    matrix: torch.Tensor,
    scales: torch.Tensor,
    given: torch.Tensor,
    left: bool = True,  # noqa: FBT001, FBT002 - torch's
    transpose: bool = False,  # noqa: FBT001, FBT002 - torch's
) -> torch.Tensor:
    """`torch.ormqr`: the product with the reflections that `torch.geqrf` returns."""
    if not left:
        return times_reflections(matrix, scales, given.mT, transpose=not transpose).mT
    steps = range(scales.shape[-1])
    for step in steps if transpose else reversed(steps):
        given = _below(step, given, _described(matrix, scales, step))
    return given


def householder_product(matrix: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    """`torch.linalg.householder_product`: the first columns of the product of reflections that the
    columns below a matrix's diagonal describe.
    """
    rows, columns = matrix.shape[-2:]
    found = torch.eye(rows, columns, dtype=matrix.dtype).expand(matrix.shape)
    for step in reversed(range(scales.shape[-1])):
        found = _below(step, found, _described(matrix, scales, step))
    return found


def least_squares(matrix: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """Return the solution of `torch.linalg.lstsq` for matrices of full rank."""
    if matrix.shape[-2] >= matrix.shape[-1]:
        orthogonal, upper = qr(matrix)
        return triangular_solution(upper, orthogonal.mT @ given, upper=True)
    orthogonal, upper = qr(matrix.mT)
    return orthogonal @ triangular_solution(upper.mT, given, upper=False)


def _described(
    matrix: torch.Tensor, scales: torch.Tensor, step: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the reflection that a column below a matrix's diagonal describes."""
    vector = torch.constant_pad_nd(matrix[..., step + 1 :, step], [1, 0], 1.0)
    return vector.unsqueeze(-1), scales[..., step, None, None]


def _reflection(column: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the vector and the scale of what turns a column into a multiple of the first axis."""
    first, below = column[..., :1], column[..., 1:]
    if column.shape[-1] == 1:  # nothing is left to be turned, and runtimes differ in empty sums
        return torch.ones_like(first).unsqueeze(-1), torch.zeros_like(first).unsqueeze(-1)
    is_done = below.square().sum(-1, keepdim=True) == 0
    length = column.square().sum(-1, keepdim=True).sqrt()
    turned = torch.where(first < 0, length, -length)
    divisor = torch.where(is_done, 1.0, first - turned)
    scale = torch.where(is_done, 0.0, (turned - first) / torch.where(is_done, 1.0, turned))
    vector = torch.cat([torch.ones_like(first), below / divisor], -1)
    return vector.unsqueeze(-1), scale.unsqueeze(-1)


def _reflected(reflection: tuple[torch.Tensor, torch.Tensor], rows: torch.Tensor) -> torch.Tensor:
    vector, scale = reflection
    return rows - scale * vector * (vector * rows).sum(-2, keepdim=True)


def _applied(
    reflections: list[tuple[torch.Tensor, torch.Tensor]], columns: torch.Tensor
) -> torch.Tensor:
    for step in reversed(range(len(reflections))):
        columns = _below(step, columns, reflections[step])
    return columns


def _below(
    step: int, columns: torch.Tensor, reflection: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    """Reflect the rows from a step on."""
    if step == 0:
        return _reflected(reflection, columns)
    rows = [columns[..., :step, :], _reflected(reflection, columns[..., step:, :])]
    return torch.cat(rows, -2)
