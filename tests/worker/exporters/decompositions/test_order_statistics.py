"""Medians and k-th values by sorting, compared with torch's own."""

import pytest
import torch

from convkit.worker.exporters.decompositions import order_statistics as by_sorting


def _values(kind: str) -> torch.Tensor:
    values = torch.randn(4, 8, generator=torch.Generator().manual_seed(1))
    if kind == "integers":
        return (values * 10).to(torch.int64)
    if kind == "missing":
        values[0, 3] = values[2, 0] = values[2, 7] = torch.nan
        values[1] = torch.nan
    if kind == "infinite":
        values[0, :3], values[1, :6], values[3] = torch.inf, -torch.inf, torch.inf
    return values


def _same(found: torch.Tensor, expected: torch.Tensor) -> bool:
    return found.dtype == expected.dtype and torch.equal(
        found.nan_to_num(7e9), expected.nan_to_num(7e9)
    )


@pytest.mark.parametrize("kind", ["plain", "integers", "missing", "infinite"])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("keepdim", [False, True])
def test_matches_torch(kind: str, dim: int, keepdim: bool) -> None:
    x = _values(kind)
    pairs = [
        (by_sorting.median_along(x, dim, keepdim), x.median(dim, keepdim)),
        (by_sorting.nanmedian_along(x, dim, keepdim), x.nanmedian(dim, keepdim)),
    ]
    pairs += [
        (by_sorting.kth_value(x, k, dim, keepdim), x.kthvalue(k, dim, keepdim))
        for k in range(1, x.shape[dim] + 1)
    ]
    for (found, places), expected in pairs:
        assert _same(found, expected.values)
        taken = x.gather(dim, places if keepdim else places.unsqueeze(dim))
        assert _same(taken if keepdim else taken.squeeze(dim), expected.values)
    assert _same(by_sorting.median(x), x.median())
    assert _same(by_sorting.nanmedian(x), x.nanmedian())


@pytest.mark.parametrize("kind", ["plain", "missing", "infinite"])
@pytest.mark.parametrize("how", ["linear", "lower", "higher", "nearest", "midpoint"])
@pytest.mark.parametrize("q", [0.0, 0.1, 0.25, 0.5, 0.9, 1.0])
def test_quantiles(kind: str, how: str, q: float) -> None:
    x = _values(kind)
    for dim in (0, -1, None):
        for keepdim in (False, True):
            found = by_sorting.quantile(x, q, dim, keepdim, interpolation=how)
            expected = torch.quantile(x, q, dim, keepdim, interpolation=how)
            assert found.shape == expected.shape
            assert torch.allclose(found, expected, atol=1e-6, equal_nan=True)
