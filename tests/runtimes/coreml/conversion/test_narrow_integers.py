"""Whole numbers of float16 programs, which coremltools narrows to int16 for gathers."""

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, evaluated

from convkit.protocol.messages import LowPrecision
from convkit.runtimes.coreml.conversion import passes, recorded_constants

HALF = LowPrecision("float16", ())


class Picked(torch.nn.Module):
    """Whole numbers beyond int16, and negative ones, picked by indices; an embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.tensor([5, 70000, -3, 40000]))
        self.embedding = torch.nn.Embedding(4, 3)

    def forward(self, large: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return large.gather(1, ids), large[:, [0, 2]], self.table[ids], self.embedding(ids)


GIVEN = {
    "large": torch.tensor([[0, 40000, -50000, 70000], [1, -2, 65535, 32768]]),
    "ids": torch.tensor([[0, 1, 2, 3], [3, 2, 1, 0]]),
}


def errors() -> list[float]:
    torch.manual_seed(0)
    module, names = Picked(), ["all", "two", "rows", "embedded"]
    with torch.no_grad():
        expected = module(**GIVEN)
    found = evaluated(converted(behind_contract(module, GIVEN, names), GIVEN, HALF).program, GIVEN)
    return [
        float(np.abs(found[name].astype(np.float64) - each.numpy()).max())
        for name, each in zip(names, expected, strict=True)
    ]


def test_they_stay_whole() -> None:
    assert errors()[:3] == [0, 0, 0]
    assert errors()[3] <= 1e-3


def test_coremltools_narrows_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorded_constants, "half_pipeline", passes.exact_pipeline)
    assert max(errors()[:2]) > 1e4


def test_indices_of_short_axes_are_narrowed() -> None:
    module = torch.nn.Embedding(4, 3)
    given = {"input": GIVEN["ids"]}
    program = converted(behind_contract(module, given, ["y"]), given, HALF).model._mil_program
    assert "int16" in str(program)
