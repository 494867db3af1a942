"""Factors, spectra and exponentials of matrices, written out and compared with LAPACK's."""

import pytest
import torch
from torch import nn

from convkit.worker.exporters.decompositions.decomposition_table import decomposed
from convkit.worker.exporters.decompositions.matrices import (
    exponentials,
    orthogonal_factors,
    spectra,
    triangular_factors,
)
from convkit.worker.exporters.open_sizes.traceable_functions import OpenSizes

SIZES = [(1, 1), (2, 2), (3, 3), (5, 5), (8, 8), (5, 3), (7, 1), (2, 6)]


def _matrices(rows: int, columns: int) -> torch.Tensor:
    """Return matrices in float64: zeros, one of rank 1, large and small ones, and others."""
    given = torch.randn(9, rows, columns, generator=torch.Generator().manual_seed(rows)).double()
    given[0], given[1] = 0, 1
    given[2] *= 1e6
    given[3] *= 1e-6
    given[4, 1:] = 0
    return given


def _is_close(found: torch.Tensor, expected: torch.Tensor, scale: torch.Tensor) -> bool:
    assert found.shape == expected.shape
    error = (found - expected).abs().reshape(found.shape[0], -1).amax(1)
    return bool((error <= 1e-12 * (scale + 1e-30)).all())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("is_full", [False, True])
def test_singular_values(size: tuple[int, int], is_full: bool) -> None:
    matrix = _matrices(*size)
    scale = matrix.abs().amax((1, 2))
    left, values, right = spectra.singular(matrix, is_full)
    expected = torch.linalg.svd(matrix, is_full)
    assert (left.shape, right.shape) == (expected[0].shape, expected[2].shape)
    assert _is_close(values, expected[1], scale)
    count = min(size)
    again = left[..., :count] * values.unsqueeze(1) @ right[:, :count]
    assert _is_close(again, matrix, scale)
    for each in (left, right.mT):  # also where a value is zero
        assert _is_close(each.mT @ each, torch.eye(each.shape[-1]).expand(9, -1, -1), 1 + 0 * scale)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("uplo", ["L", "U"])
def test_eigenvalues(size: int, uplo: str) -> None:
    matrix = _matrices(size, size)
    scale = matrix.abs().amax((1, 2))
    values, vectors = spectra.eigen(matrix, uplo)
    assert _is_close(values, torch.linalg.eigvalsh(matrix, uplo), scale)
    half = matrix.tril(-1) if uplo == "L" else matrix.triu(1)
    whole = half + half.mT + torch.diag_embed(matrix.diagonal(dim1=1, dim2=2))
    assert _is_close(vectors * values.unsqueeze(1) @ vectors.mT, whole, scale)
    assert _is_close(vectors.mT @ vectors, torch.eye(size).expand(9, -1, -1), 1 + 0 * scale)


@pytest.mark.parametrize("size", SIZES)
def test_factors_with_their_signs(size: tuple[int, int]) -> None:
    matrix = _matrices(*size)
    scale = matrix.abs().amax((1, 2))
    for mode in ("reduced", "complete", "r"):
        expected = torch.linalg.qr(matrix, mode)
        found = orthogonal_factors.qr(matrix, mode)
        assert found[0].shape == expected[0].shape
        assert _is_close(found[1], expected[1], scale)
        if mode != "r":
            again = found[0] @ found[1]
            assert _is_close(again, matrix, scale)
            assert _is_close(found[0][5:], expected[0][5:], torch.ones(4))
    given = torch.ones(9, size[0], 2).double()
    found_one = orthogonal_factors.least_squares(matrix[5:], given[5:])
    expected_one = torch.linalg.lstsq(matrix[5:], given[5:]).solution
    assert _is_close(found_one, expected_one, 1e2 * expected_one.abs().amax((1, 2)))


def test_pseudoinverses_and_exponentials() -> None:
    for size in SIZES:
        matrix = _matrices(*size)[3:]
        expected = torch.linalg.pinv(matrix)
        assert _is_close(
            spectra.pseudoinverse(matrix), expected, 1e3 * (1 + expected.abs().amax((1, 2)))
        )
    for factor in (1e-3, 1, 30):
        matrix = factor * _matrices(4, 4)[4:]
        expected = torch.matrix_exp(matrix)
        # Its polynomial is meant for float32.
        scale = 1e3 * expected.abs().amax((1, 2))
        assert _is_close(exponentials.exponential(matrix), expected, scale)


class _Composed(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            torch.linalg.matrix_norm(x, "nuc"),
            torch.linalg.matrix_power(y, -2),
            torch.linalg.vander(x[:, 0], N=3),
            torch.linalg.lstsq(x, x[..., :1]).solution,
        )


def test_what_torch_composes_of_them_has_none_of_its_operators() -> None:
    x = torch.randn(3, 3, 2, generator=torch.Generator().manual_seed(1))
    y = x.mT @ x + torch.eye(2)
    axes = tuple({0: torch.export.Dim.DYNAMIC} for _ in range(2))
    with OpenSizes():
        program = torch.export.export(_Composed(), (x, y), dynamic_shapes=axes, strict=False)
    program = decomposed(program)
    targets = {str(node.target) for node in program.graph.nodes}
    assert not {each for each in targets if "linalg_" in each and "vector_norm" not in each}
    given = torch.cat([x, x.flip(1)])[:5]
    pairs = given.mT @ given + torch.eye(2)
    for found, expected in zip(
        program.module()(given, pairs), _Composed()(given, pairs), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("size", SIZES)
def test_triangular_factors(size: tuple[int, int]) -> None:
    matrix = _matrices(*size)
    scale = matrix.abs().amax((1, 2))
    order, lower, upper = triangular_factors.factors(matrix)
    expected = torch.linalg.lu(matrix)
    assert torch.equal(order, expected.P)
    assert _is_close(lower, expected.L, 1 + 0 * scale)
    assert _is_close(upper, expected.U, scale)
    packed, exchanged, first_zero = triangular_factors.checked_factors(matrix)
    known = torch.linalg.lu_factor_ex(matrix)
    assert _is_close(packed, known.LU, 1 + scale)
    assert torch.equal(exchanged, known.pivots)
    assert torch.equal(first_zero, known.info)


@pytest.mark.parametrize("adjoint", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_systems_by_triangular_factors(left: bool, adjoint: bool) -> None:
    random = torch.Generator().manual_seed(1)
    factors = torch.linalg.lu_factor(torch.randn(9, 5, 5, generator=random).double())
    given = torch.randn(9, 5, 2, generator=random).double()
    given = given if left else given.mT
    found = triangular_factors.solution(*factors, given, left=left, adjoint=adjoint)
    expected = torch.linalg.lu_solve(*factors, given, left=left, adjoint=adjoint)
    assert _is_close(found, expected, 1e3 * expected.abs().amax((1, 2)))
