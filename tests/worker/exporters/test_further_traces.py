"""Modules that torch.export traces with open sizes in a further attempt only."""

import pytest
import torch

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.exporters.dynamic_trace import trace

CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", "length")),),
    (),
    (Axis("batch", 1, 4, 8), Axis("length", 20, 32, 64)),
)


class LastShape(torch.nn.Module):
    """Detection heads make their anchors again if a shape is another than that of the last call."""

    shape = None
    anchors = torch.empty(0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.shape != x.shape:
            self.anchors = torch.arange(x.shape[1]) + 0.5
            self.shape = x.shape
        return x * self.anchors


class Growing(torch.nn.Module):
    """Speech encoders compute positions again for a longer input than any before."""

    positions = torch.arange(1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.positions.shape[0] < x.shape[1]:
            self.positions = torch.arange(float(x.shape[1]))
        return x + self.positions[: x.shape[1]]


class Cut(torch.nn.Module):
    """A slice up to a limit cuts something off at most sizes, but nothing at the example's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, : min(x.shape[1], 40)] * 2


@pytest.mark.parametrize("kind", [LastShape, Growing, Cut])
@pytest.mark.sampled(2)
def test_its_sizes_are_open(kind: type[torch.nn.Module]) -> None:
    module = kind()
    example = torch.randn(4, 32)
    module(example)  # as a survey does
    program = trace(module, [example], CONTRACT, None)
    for shape in ((1, 20), (3, 33), (8, 64)):
        x = torch.randn(shape)
        torch.testing.assert_close(program.module(check_guards=False)(x), module(x))
