"""Powers, combinations and histograms, compared with torch's own, and of an open number."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from convkit.worker.exporters.open_sizes import tables_of_numbers as tables
from convkit.worker.exporters.open_sizes import traceable_functions
from convkit.worker.exporters.open_sizes.traceable_functions import OpenSizes

X = torch.randn(9, generator=torch.Generator().manual_seed(1))
EDGES = torch.tensor([-1.0, 0, 0.2, 3])


@pytest.mark.parametrize("increasing", [False, True])
@pytest.mark.parametrize("count", [None, 0, 1, 3])
def test_powers(count: int | None, increasing: bool) -> None:
    for x in (X, (3 * X).to(torch.int32)):
        expected = torch.vander(x, count, increasing)
        torch.testing.assert_close(tables.vander(x, count, increasing), expected)


@pytest.mark.parametrize("with_replacement", [False, True])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_combinations(count: int, with_replacement: bool) -> None:
    expected = torch.combinations(X, count, with_replacement)
    assert torch.equal(tables.combinations(X, count, with_replacement), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"bins": 5},
        {"bins": 5, "range": (-1.0, 1.5)},
        {"bins": 4, "range": (0.5, 0.5)},
        {"bins": 5, "density": True},
        {"bins": 7, "weight": torch.rand(9)},
        {"bins": EDGES},
    ],
)
def test_histograms(options: dict[str, Any]) -> None:
    # Halves lie on edges.
    for x in (X, (2 * X).round() / 2, torch.ones(9)):
        found, edges = tables.histogram(x, **options)  # type: ignore[misc]
        torch.testing.assert_close((found, edges), tuple(torch.histogram(x, **options)))


@pytest.mark.parametrize(
    "options",
    [
        {"aweights": X.abs()},
        {"fweights": torch.arange(9) % 3 + 1, "correction": 0},
        {"fweights": torch.arange(9) % 3 + 1, "aweights": X.abs(), "correction": 2},
    ],
)
def test_weighted_covariances(options: dict[str, Any]) -> None:
    rows = torch.stack([X, X.square(), X.flip(0)])
    for given in (rows, X):
        expected = torch.cov(given, **options)
        torch.testing.assert_close(traceable_functions.cov(given, **options), expected)


OPEN: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "powers": lambda x: torch.vander(x, 4),
    "as many powers": torch.vander,
    "pairs": torch.combinations,
    "threes": lambda x: torch.combinations(x, 3, with_replacement=True),
    "a histogram": lambda x: torch.histogram(x, 5).hist,
    "weights": lambda x: torch.cov(torch.stack([x, x.exp()]), aweights=x.abs()),
}


@pytest.mark.parametrize("name", OPEN)
def test_an_open_number(name: str) -> None:
    class Called(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return OPEN[name](x)

    with OpenSizes():
        axes = ({0: torch.export.Dim("numbers", min=3, max=9)},)
        program = torch.export.export(Called(), (X[:7],), dynamic_shapes=axes, strict=False)
    for size in (3, 7, 9):
        torch.testing.assert_close(program.module()(X[:size]), OPEN[name](X[:size]))
