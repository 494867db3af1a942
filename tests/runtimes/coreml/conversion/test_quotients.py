"""Quotients by one that are rounded down, which coremltools takes for what they divide."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, evaluated
from test_corrections import Applied

from convkit.runtimes.coreml.conversion import missing_operators, module_conversion, quotients
from convkit.runtimes.coreml.conversion.passes import exact_pipeline

X = 5 * torch.randn(2, 6, generator=torch.Generator().manual_seed(0))
ROUNDED: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: x // 1.0 + torch.floor_divide(x, 0.75),
    lambda x: x % 1.0,
    lambda x: torch.div(x, 1, rounding_mode="floor"),
]


def error(function: Callable[[torch.Tensor], torch.Tensor]) -> float:
    module = Applied(function)
    inside = behind_contract(module, {"x": X}, ["y"])
    found = evaluated(converted(inside, {"x": X}).program, {"x": X})["y"]
    return float(np.abs(found - module(X).numpy()).max())


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let quotients reach coremltools undecomposed, as those that torch.jit.trace follows."""
    monkeypatch.setattr(missing_operators, "_DIVIDED", frozenset())


@pytest.mark.parametrize("function", ROUNDED)
@pytest.mark.usefixtures("whole")
@pytest.mark.sampled(2)
def test_they_are_rounded(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    assert error(function) <= 1e-6


@pytest.mark.thorough
def test_quotients_near_whole_numbers_are_torchs() -> None:
    class Divided(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x // 0.1, x % 0.3, torch.fmod(x, 0.7)

    x = {"x": torch.arange(-40, 40).reshape(2, 40) * 0.1}
    expected = Divided()(x["x"])
    found = evaluated(converted(behind_contract(Divided(), x, ["a", "b", "c"]), x).program, x)
    assert not torch.equal(expected[0], torch.floor(x["x"] / 0.1))
    for name, right in zip("abc", expected, strict=True):
        assert np.array_equal(found[name], right.numpy()), name


@pytest.mark.usefixtures("whole")
def test_coremltools_leaves_them_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def without() -> object:
        pipeline = exact_pipeline()
        pipeline.remove_passes({quotients.FLOORS})
        return pipeline

    monkeypatch.setattr(module_conversion, "exact_pipeline", without)
    assert all(error(function) > 0.1 for function in ROUNDED[:2])
