"""Linear algebra written out, compared with torch's own."""

import pytest
import torch

from convkit.worker.exporters.decompositions.matrices import elimination as written_out

SIZES = (1, 2, 3, 5, 16)


def _close(found: torch.Tensor, expected: torch.Tensor) -> bool:
    assert found.shape == expected.shape
    return bool(((found - expected).abs() <= 1e-9 * (1 + expected.abs().max())).all())


def _matrices(size: int) -> torch.Tensor:
    """Return matrices, of which some cannot be eliminated without an exchange of rows."""
    given = torch.randn(6, size, size, generator=torch.Generator().manual_seed(size)).double()
    if size > 1:
        given[0, 0, 0] = 0
        given[1] = torch.eye(size)[torch.arange(size - 1, -1, -1)]
    return given


@pytest.mark.parametrize("size", SIZES)
def test_matches_torch(size: int) -> None:
    matrix = _matrices(size)
    columns, vectors = torch.randn(6, size, 3).double(), torch.randn(6, size).double()
    assert _close(written_out.inverse(matrix), torch.linalg.inv(matrix))
    assert _close(written_out.determinant(matrix), torch.linalg.det(matrix))
    assert _close(written_out.solution(matrix, columns), torch.linalg.solve(matrix, columns))
    assert _close(written_out.solution(matrix, vectors), torch.linalg.solve(matrix, vectors))
    from_right = torch.linalg.solve(matrix, columns.mT, left=False)
    assert _close(written_out.solution(matrix, columns.mT, left=False), from_right)
    for found, expected in zip(
        written_out.sign_and_logarithm(matrix), torch.linalg.slogdet(matrix), strict=True
    ):
        assert _close(found, expected)


def test_one_matrix_for_many_right_sides() -> None:
    matrix, columns = _matrices(3)[0], torch.randn(5, 3, 2).double()
    assert _close(written_out.solution(matrix, columns), torch.linalg.solve(matrix, columns))
    vector = columns[0, :, 0]
    assert _close(written_out.solution(matrix, vector), torch.linalg.solve(matrix, vector))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("upper", [False, True])
def test_factors(size: int, upper: bool) -> None:
    matrix, columns = _matrices(size), torch.randn(6, size, 3).double()
    positive = matrix @ matrix.mT + torch.eye(size)
    factor = torch.linalg.cholesky(positive, upper=upper)
    assert _close(written_out.cholesky(positive, upper=upper), factor)
    for left, given in ((True, columns), (False, columns.mT)):
        for unit in (False, True):
            expected = torch.linalg.solve_triangular(
                factor, given, upper=upper, left=left, unitriangular=unit
            )
            found = written_out.triangular_solution(
                factor, given, upper=upper, left=left, unitriangular=unit
            )
            assert _close(found, expected)


@pytest.mark.parametrize("size", [17, 48, 64, 150])
@pytest.mark.parametrize("upper", [False, True])
def test_large_triangles_are_solved_by_blocks(size: int, upper: bool) -> None:
    generator = torch.Generator().manual_seed(size)
    random = torch.randn(3, size, size, generator=generator).double()
    factor = torch.linalg.cholesky(random @ random.mT + torch.eye(size), upper=upper)
    all_read = torch.ones(size, size).bool()
    is_read = all_read.triu() if upper else all_read.tril()
    given = torch.where(is_read, factor, torch.nan)
    columns = torch.randn(3, size, 4, generator=generator).double()
    for left, right in ((True, columns), (False, columns.mT)):
        for unit in (False, True):
            scaled = factor / factor.diagonal(dim1=-2, dim2=-1).abs().amax() / 4 if unit else factor
            expected = torch.linalg.solve_triangular(
                scaled, right, upper=upper, left=left, unitriangular=unit
            )
            read = scaled if unit else given
            found = written_out.triangular_solution(
                read, right, upper=upper, left=left, unitriangular=unit
            )
            assert _close(found, expected)
    lower = factor.mT if upper else factor
    expected = torch.cholesky_solve(columns, lower)
    assert _close(written_out.solution_by_factor(columns, factor, upper), expected)


@pytest.mark.parametrize("rows", [[[0.0, 0], [0, 0]], [[1.0, 2], [2, 4]], [[0.0, 1], [0, 2]]])
def test_singular_matrices(rows: list[list[float]]) -> None:
    matrix = torch.tensor(rows)
    assert written_out.determinant(matrix) == 0
    sign, logarithm = written_out.sign_and_logarithm(matrix)
    assert (sign, logarithm) == (0, -torch.inf)
    assert not written_out.inverse(matrix).isfinite().all()
