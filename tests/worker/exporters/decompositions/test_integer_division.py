"""Quotients of whole numbers that round, which torch's exporter computes in float32."""

from typing import Literal

import pytest
import torch
from torch import nn

from convkit.worker.exporters.decompositions.decomposition_table import decomposed
from convkit.worker.exporters.decompositions.integer_division import rounded_quotient

Mode = Literal["floor", "trunc"]
# From 2**24 on, float32 rounds.
LARGE = torch.tensor([2**53 + 1, -(2**53) - 5, 16777217, -16777219, 7, -7, 0])


@pytest.mark.parametrize("mode", ["floor", "trunc"])
@pytest.mark.parametrize("divisor", [3, -3, 86_400_000_000])
def test_whole_quotients_are_torchs(mode: Mode, divisor: int) -> None:
    expected = torch.div(LARGE, divisor, rounding_mode=mode)
    found = rounded_quotient(LARGE, divisor, rounding_mode=mode)
    assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())


@pytest.mark.parametrize("dtype", [torch.int32, torch.int8, torch.uint8])
def test_narrow_types_stay(dtype: torch.dtype) -> None:
    values = torch.tensor([7, 100, 0, 127], dtype=dtype)
    for mode in ("floor", "trunc"):
        expected = torch.div(values, values.clamp(min=3), rounding_mode=mode)
        found = rounded_quotient(values, values.clamp(min=3), rounding_mode=mode)
        assert found.dtype == expected.dtype
        assert torch.equal(found, expected)


class Quotients(nn.Module):
    def forward(self, ids: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        whole = torch.div(ids, 7, rounding_mode="trunc")
        return whole, torch.div(x, 0.7, rounding_mode="floor"), torch.div(ids, 2.5)


def test_a_program_with_both_kinds_keeps_its_values() -> None:
    inputs = (LARGE, torch.linspace(-3, 3, 7))
    program = decomposed(torch.export.export(Quotients(), inputs))
    targets = {str(node.target) for node in program.graph.nodes}
    assert "aten.div.Tensor_mode" not in targets
    for found, expected in zip(program.module()(*inputs), Quotients()(*inputs), strict=True):
        assert torch.equal(found, expected)


def test_floats_cut_off_are_left_to_torch() -> None:
    class Floats(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.div(x, 0.7, rounding_mode="trunc")

    program = torch.export.export(Floats(), (torch.ones(3),))
    assert decomposed(program) is program
