"""Conditions on sizes that torch cannot prove are tried at every declared size."""

import numpy as np
import pytest
import torch
from torch import nn

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.exporters.deferred_guards import drop_assertions
from convkit.worker.exporters.dynamic_trace import trace
from convkit.worker.exporters.export_job import UnexportableError

BATCH = Axis("batch", 1, 2, 3)
X = TensorSpec("x", "float32", ("batch", "sequence", 4))
Y = TensorSpec("y", "float32", ("batch", "sequence", "sequence"))


class Shifted(nn.Module):
    """Scores of relative positions, moved into place by reshaping: XLNet's way."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, size, _ = x.shape
        scores = x @ torch.cat([x, x.flip(1)], 1).transpose(1, 2)
        moved = scores.reshape(batch, 2 * size, size)[:, 1:].reshape(batch, size, 2 * size - 1)
        return moved.index_select(2, torch.arange(size))


class Halved(nn.Module):
    """Works at even sizes only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[1]
        if size % 2 == 0:
            return x @ x.transpose(1, 2)
        return x @ x.transpose(1, 2) * 2


class UpToTheEnd(nn.Module):
    """Reads a part of a buffer, all of it at the largest size: nanoGPT's way."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mask", torch.tril(torch.ones(9, 9)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        size = x.shape[1]
        return (x @ x.transpose(1, 2)).masked_fill(self.mask[:size, :size] == 0, 0.0)


class LargestIsAnother(nn.Module):
    """Computes something else at the largest size."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scores = x @ x.transpose(1, 2)
        return scores * 2 if x.shape[1] == 9 else scores


def traced(module: nn.Module, sequence: Axis) -> torch.export.ExportedProgram:
    contract = Contract((X,), (Y,), (BATCH, sequence))
    return trace(module, (torch.randn(2, sequence.typical, 4),), contract)


def test_conditions_that_hold_at_every_size_are_dropped() -> None:
    program = traced(Shifted(), Axis("sequence", 2, 6, 9))
    assert not any("assert" in node.name for node in program.graph.nodes)
    for size in (2, 3, 9):
        x = torch.randn(3, size, 4)
        np.testing.assert_allclose(program.graph_module(x)[0], Shifted()(x), rtol=1e-6)


@pytest.mark.thorough
def test_a_condition_that_changes_nothing_where_it_fails_is_dropped() -> None:
    program = traced(UpToTheEnd(), Axis("sequence", 2, 6, 9))
    for size in (2, 8, 9):
        x = torch.randn(3, size, 4)
        found = program.module(check_guards=False)(x)
        np.testing.assert_allclose(found, UpToTheEnd()(x), rtol=1e-6)


@pytest.mark.thorough
def test_a_condition_that_makes_a_difference_at_one_size_is_reported() -> None:
    with pytest.raises(UnexportableError) as caught:
        traced(LargestIsAnother(), Axis("sequence", 2, 6, 9))
    assert [finding.code for finding in caught.value.findings] == ["C113"]


@pytest.mark.parametrize("sequence", [Axis("sequence", 2, 6, 9), Axis("sequence", 4, 6, 5000)])
@pytest.mark.sampled(1)
def test_a_condition_that_fails_at_a_size_is_reported(sequence: Axis) -> None:
    with pytest.raises(UnexportableError) as caught:
        traced(Halved(), sequence)
    assert [finding.code for finding in caught.value.findings] == ["C113"]


class Typed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.cos().to(torch.float32) * 2


def test_assertions_about_types_are_dropped_too() -> None:
    program = torch.export.export(Typed(), (torch.ones(2),), strict=False)
    assert any("assert" in node.name for node in program.graph.nodes)
    drop_assertions(program)
    assert not any("assert" in node.name for node in program.graph.nodes)
    assert torch.equal(program.module()(torch.zeros(2)), torch.full((2,), 2.0))
