"""Bools and bytes in operations of ML programs that lack them, and what complex numbers become."""

from collections.abc import Callable

import pytest
import torch
from coreml_modules import behind_contract, converted, evaluated

from convkit.worker.exporters.export_job import UnexportableError

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
GIVEN = {
    "x": torch.randn(3, 4, generator=torch.Generator().manual_seed(3)),
    "places": torch.tensor([[0, 2, 1, 0], [1, 1, 0, 2], [0, 0, 1, 1]]),
}
FUNCTIONS: dict[str, Function] = {
    "gathered": lambda x, places: x.gather(1, places),
    "selected": lambda x, _: x.index_select(1, torch.tensor([0, 2])),
    "largest": lambda x, _: x.amax(1),
    "sorted": lambda x, _: x.sort(dim=1, stable=True)[1],
    "counted": lambda x, _: x.prod(1),
    "compared": lambda x, places: x < (places > 0),
    "written": lambda x, _: torch.slice_scatter(x, x[:, 2:], 1, 0, 2),
    "bytes": lambda x, places: x.to(torch.uint8).gather(1, places),
}


class OfBools(torch.nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return self.function(x > 0, places).to(torch.int32)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.sampled(3)
def test_they_are_numbers_there(name: str) -> None:
    module = OfBools(FUNCTIONS[name])
    program = converted(behind_contract(module, GIVEN, ["y"]), GIVEN).program
    assert evaluated(program, GIVEN)["y"].tolist() == module(**GIVEN).tolist()


class OfSpectra(torch.nn.Module):
    """A recurrent layer, and linear algebra on complex numbers."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = torch.nn.GRU(6, 6, batch_first=True)
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        moved = x + self.layer(x.flatten(2))[0].unflatten(2, (3, 2))
        found = self.function(torch.view_as_complex(moved))
        return torch.view_as_real(found) if found.is_complex() else found


MATRICES = {"x": torch.randn(2, 3, 3, 2, generator=torch.Generator().manual_seed(3))}


@pytest.mark.parametrize("function", [torch.linalg.inv, lambda z: torch.linalg.solve(z, z.mT)])
@pytest.mark.sampled(1)
def test_complex_systems_are_solved(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    module = OfSpectra(function).eval()
    with torch.no_grad():
        expected = module(**MATRICES)
    program = converted(behind_contract(module, MATRICES, ["y"]), MATRICES).program
    found = torch.from_numpy(evaluated(program, MATRICES)["y"])
    assert torch.allclose(found, expected, atol=1e-4)


@pytest.mark.thorough
def test_the_operation_on_complex_numbers_is_named() -> None:
    module = OfSpectra(torch.linalg.svdvals).eval()
    with pytest.raises(UnexportableError) as refused:
        converted(behind_contract(module, MATRICES, ["y"]), MATRICES)
    (finding,) = refused.value.findings
    assert finding.code == "V103"
    assert "complex" in finding.message
    assert "svd" in finding.message
