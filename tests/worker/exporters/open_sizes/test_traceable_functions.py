"""Functions that fix sizes in a trace, and those that take their place."""

import contextlib
import warnings
from collections.abc import Callable

import pytest
import torch

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.exporters import dynamic_trace
from convkit.worker.exporters.decompositions.decomposition_table import decomposed
from convkit.worker.exporters.open_sizes import traceable_functions as traceable
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.loaded_model import LoadedModel

X = torch.randn(3, 7, 5, generator=torch.Generator().manual_seed(1))
STEPS = torch.tensor([0.0, 1, 3, 4, 7, 8, 9])
INDEX = torch.randint(0, 3, (3, 7, 5), generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dim": 1},
        {"dim": (0, 2), "spacing": 2.0},
        {"dim": (0, 2), "spacing": (2.0, 3.0)},
        {"dim": -1, "edge_order": 2},
        {"dim": 1, "spacing": (STEPS,)},
        {"dim": 1, "spacing": (STEPS,), "edge_order": 2},
    ],
)
def test_gradients(options: dict[str, object]) -> None:
    found = traceable.gradient(X, **options)  # type: ignore[arg-type]
    torch.testing.assert_close(found, list(torch.gradient(X, **options)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other"), [(X, X[0, 0]), (X[0, 0], X), (X[0], X[1, :2]), (torch.tensor(2.0), X)]
)
def test_products_of_blocks(one: torch.Tensor, other: torch.Tensor) -> None:
    torch.testing.assert_close(traceable.kron(one, other), torch.kron(one, other))


@pytest.mark.parametrize(
    ("x", "index", "dim"),
    [
        (X, INDEX, 2),
        (X, INDEX[:1], 2),
        (X[:1], INDEX, 1),
        (X, INDEX[:, :1, :2], 2),
        (X, INDEX, 0),
        (X, INDEX, None),
    ],
)
def test_values_along_a_dimension(x: torch.Tensor, index: torch.Tensor, dim: int | None) -> None:
    expected = torch.take_along_dim(x, index, dim)
    torch.testing.assert_close(traceable.take_along_dim(x, index, dim), expected)


@pytest.mark.parametrize("shape", [(4, 4), (3, 5), (5, 2), (3, 3, 3)])
def test_diagonals_are_filled(shape: tuple[int, ...]) -> None:
    for wrap in (False, True):
        x = torch.zeros(shape)
        assert traceable.fill_diagonal(x, 3.0, wrap) is x
        torch.testing.assert_close(x, torch.zeros(shape).fill_diagonal_(3.0, wrap))


def test_covariances() -> None:
    for x in (X[0], X[0, 0]):
        torch.testing.assert_close(traceable.cov(x), torch.cov(x))
        torch.testing.assert_close(traceable.cov(x, correction=0), torch.cov(x, correction=0))
        torch.testing.assert_close(traceable.corrcoef(x), torch.corrcoef(x))
    weights = torch.rand(5)
    expected = torch.cov(X[0], aweights=weights)
    torch.testing.assert_close(traceable.cov(X[0], aweights=weights), expected)


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 0, -1])
def test_bags_of_embeddings(mode: str, padding: int | None) -> None:
    ids = torch.tensor([[0, 0, 0], [1, 0, 6], [6, 6, 6], [2, 3, 3]])
    bags = torch.nn.EmbeddingBag(7, 4, mode=mode, padding_idx=padding)
    with torch.no_grad(), traceable.OpenSizes():
        found = bags(ids)
        lists = bags(ids.flatten(), torch.tensor([0, 5]))
    torch.testing.assert_close(found, bags(ids).detach())
    torch.testing.assert_close(lists, bags(ids.flatten(), torch.tensor([0, 5])).detach())
    if mode == "sum":
        shares = torch.linspace(0, 1, 12).reshape(4, 3)
        with torch.no_grad(), traceable.OpenSizes():
            found = bags(ids, per_sample_weights=shares)
        torch.testing.assert_close(found, bags(ids, per_sample_weights=shares).detach())


def test_bags_keep_the_batch_open(monkeypatch: pytest.MonkeyPatch) -> None:
    bags = torch.nn.EmbeddingBag(7, 4)
    ids = torch.randint(0, 7, (6, 5), generator=torch.Generator().manual_seed(0))
    contract = Contract(
        (TensorSpec("input", "int64", ("batch", 5)),),
        (TensorSpec("bags", "float32", ("batch", 4)),),
        (Axis("batch", 1, 2, 8),),
    )
    module = ContractModule(LoadedModel(bags, "a test's"), contract)

    def of_six() -> torch.Tensor:
        program = dynamic_trace.trace(module, (ids[:2],), contract, None)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's own deprecations
            (found,) = decomposed(program).module()(ids)
        return found

    torch.testing.assert_close(of_six(), bags(ids))
    monkeypatch.setattr(dynamic_trace, "OpenSizes", contextlib.nullcontext)
    with pytest.raises((AssertionError, RuntimeError), match=r"2|size|shape"):
        of_six()


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.gradient(x, dim=1)[0],
        lambda x: torch.kron(x, torch.ones(2)),
        lambda x: x.take_along_dim(x.argsort(1)[:, :2], 1),
        lambda x: x[:, 0].T.cov() @ x[:, 0].T,
        lambda x: torch.linspace(0, x.shape[0] * 2 - 1, x.shape[0]),
        lambda x: x[torch.linspace(0, x.shape[0] - 1, x.shape[0]).long()],
        lambda x: torch.nn.functional.max_pool1d(x.movedim(0, -1), 3, 1, 1),
        lambda x: torch.cat([x, 2 * x]).chunk(2)[1],
        lambda x: torch.chunk(torch.cat([x, 2 * x]), chunks=2, dim=0)[0],
        lambda x: torch.cat([x, 2 * x, x]).split(x.shape[0])[1],
        lambda x: torch.split(torch.cat([x, 2 * x]), x.shape[0], dim=0)[1],
    ],
)
@pytest.mark.sampled(2)
def test_sizes_stay_open(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return function(x)

    axes = ({0: torch.export.Dim("batch", min=1, max=9)},)
    with pytest.raises(Exception, match=r"specialized|equal"):
        torch.export.export(Module(), (X,), dynamic_shapes=axes, strict=False)
    with traceable.OpenSizes():
        program = torch.export.export(Module(), (X,), dynamic_shapes=axes, strict=False)
    for x in (X, X[:2]):
        torch.testing.assert_close(program.module()(x), function(x))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.split(2)[0],
        lambda x: torch.split(x, [1, 2], dim=0)[1],
        lambda x: x.split(split_size=3, dim=1)[2],
        lambda x: x.chunk(3, -1)[2],
    ],
)
def test_other_parts_are_torchs(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    with traceable.OpenSizes():
        found = function(X)
    torch.testing.assert_close(found, function(X))


@pytest.mark.thorough
def test_steps_from_one_number_to_another_are_torchs_to_the_bit() -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linspace(-0.3, x.shape[0] * 3 - 1, x.shape[0])

    axes = ({0: torch.export.Dim("rows", min=1, max=99)},)
    with traceable.OpenSizes():
        program = torch.export.export(Module(), (X[:, 0],), dynamic_shapes=axes, strict=False)
    for rows in range(1, 60):
        found = program.module()(torch.zeros(rows, 5))
        assert torch.equal(found, torch.linspace(-0.3, rows * 3 - 1, rows)), rows


@pytest.mark.parametrize("triangle", [torch.tril_indices, torch.triu_indices])
def test_triangles_of_open_squares_are_torchs(triangle: Callable[..., torch.Tensor]) -> None:
    class Module(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            n = x.shape[0]
            return triangle(n, n, offset=0, device=x.device)

    axes = ({0: torch.export.Dim("rows", min=1, max=999)},)
    with pytest.raises(Exception, match="specialized"):
        torch.export.export(Module(), (X[:, 0],), dynamic_shapes=axes, strict=False)
    with traceable.OpenSizes():
        program = torch.export.export(Module(), (X[:, 0],), dynamic_shapes=axes, strict=False)
    for rows in (2, 3, 4, 7, 50, 701):
        found = program.module()(torch.zeros(rows, 5))
        assert torch.equal(found, triangle(rows, rows)), rows
    expected = triangle(3, 5, 1)
    with traceable.OpenSizes():
        assert torch.equal(triangle(3, 5, 1), expected)
