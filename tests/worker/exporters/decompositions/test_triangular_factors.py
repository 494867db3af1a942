"""LU and packed QR factors, written out and compared with LAPACK's."""

import pytest
import torch

from convkit.worker.exporters.decompositions.matrices import orthogonal_factors, triangular_factors

SIZES = [(1, 1), (2, 2), (3, 5), (5, 3), (7, 1), (1, 4), (6, 6)]


def _matrices(rows: int, columns: int) -> torch.Tensor:
    """Return matrices in float64, one that must exchange rows and one without a last pivot."""
    given = torch.randn(4, rows, columns, generator=torch.Generator().manual_seed(rows)).double()
    given[0, 0, 0] = 0
    given[1, -1] = given[1, 0]
    return given


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pivot", [True, False])
def test_lu(size: tuple[int, int], pivot: bool) -> None:
    matrix = _matrices(*size)
    if not pivot:
        matrix = matrix[2:]
        # torch has no CPU kernel without pivots.
        _, lower, upper = triangular_factors.factors(matrix, pivot=False)
        torch.testing.assert_close(lower @ upper, matrix)
        return
    found = triangular_factors.checked_factors(matrix)
    expected = torch.linalg.lu_factor_ex(matrix)
    for one, other in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(one, other)
    torch.testing.assert_close(found[2][2:], expected[2][2:])
    factors = triangular_factors.factors(matrix)
    torch.testing.assert_close(factors, tuple(torch.linalg.lu(matrix)))
    unpacked = triangular_factors.unpacked(*expected[:2])
    torch.testing.assert_close(unpacked, tuple(torch.lu_unpack(*expected[:2])))


def test_a_missing_pivot_is_counted() -> None:
    for rows in ([[0.0, 1], [0, 2]], [[1.0, 2], [1, 2]], [[0.0, 0], [0, 0]]):
        matrix = torch.tensor(rows)
        found, expected = (
            triangular_factors.checked_factors(matrix),
            torch.linalg.lu_factor_ex(matrix),
        )
        torch.testing.assert_close(found, tuple(expected))


@pytest.mark.parametrize("left", [True, False])
@pytest.mark.parametrize("adjoint", [True, False])
def test_solutions_by_factors(left: bool, adjoint: bool) -> None:
    matrix = _matrices(5, 5)[[0, 2, 3]]
    factors = torch.linalg.lu_factor(matrix)
    for given in (torch.randn(3, 5, 2).double(), torch.randn(5, 4).double()):
        columns = given if left else given.mT
        found = triangular_factors.solution_by_factors(
            *factors, columns, left=left, adjoint=adjoint
        )
        expected = torch.linalg.lu_solve(*factors, columns, left=left, adjoint=adjoint)
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("upper", [True, False])
@pytest.mark.parametrize("transpose", [True, False])
@pytest.mark.filterwarnings("ignore:torch.triangular_solve")  # torch's deprecation
def test_triangular_solutions(upper: bool, transpose: bool) -> None:
    matrix, given = _matrices(5, 5)[2:], torch.randn(2, 5, 3).double()
    for unit in (True, False):
        options = upper, transpose, unit
        found = triangular_factors.transposed_solution(given, matrix, *options)
        expected = torch.triangular_solve(given, matrix, *options)
        torch.testing.assert_close(found[0], expected[0])


@pytest.mark.parametrize("size", SIZES)
def test_packed_reflections(size: tuple[int, int]) -> None:
    matrix = _matrices(*size)
    found, expected = orthogonal_factors.packed_qr(matrix), torch.geqrf(matrix)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other)
    given = torch.randn(4, size[0], 3).double()
    for left in (True, False):
        for transpose in (True, False):
            factor = given if left else given.mT
            product = orthogonal_factors.times_reflections(*expected, factor, left, transpose)
            wanted = torch.ormqr(*expected, factor, left, transpose)
            torch.testing.assert_close(product, wanted)
