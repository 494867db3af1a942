"""Modules that compute gradients, where their caller records none."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_models import factory_source

from convkit.protocol.contract import Contract, TensorSpec
from convkit.worker.original.inner_gradients import recording
from convkit.worker.reference.original_model import TorchOriginal

CONTRACT = Contract(
    (TensorSpec("x", "float32", (2, 3)),), (TensorSpec("y", "float32", (2, 3)),), ()
)
FORCES = """
class Forces(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 4)

    def energy(self, x):
        return self.layer(x).tanh().sum()

    def forward(self, x):
        {lines}

def build():
    return Forces()
"""
BY_ITSELF = """
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(self.energy(x), x)[0]
"""
BY_ITS_CALLER = """
        x.requires_grad_()
        return torch.autograd.grad(self.energy(x), x)[0]
"""


@pytest.mark.parametrize("lines", [BY_ITSELF, BY_ITS_CALLER])
def test_the_reference_has_their_gradients(tmp_path: Path, lines: str) -> None:
    original = TorchOriginal(factory_source(tmp_path, FORCES.format(lines=lines)), CONTRACT)
    x = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)
    first, again = (original.run({"x": x})["y"] for _ in range(2))
    weights = original.module.layer
    given = torch.from_numpy(x).requires_grad_()
    expected = torch.autograd.grad(weights(given).tanh().sum(), given)[0]
    assert np.allclose(first, expected.numpy(), atol=1e-6)
    assert np.array_equal(first, again)


class Failing(torch.nn.Module):
    def forward(self, x: torch.Tensor, *, then: bool = False) -> torch.Tensor:
        if then and torch.is_grad_enabled():
            raise RuntimeError("something else")
        return torch.autograd.grad(x.sum(), x)[0]


def test_nothing_is_left_behind_where_they_do_not_help() -> None:
    module, x = Failing(), torch.ones(2)
    with torch.no_grad(), pytest.raises(RuntimeError, match="something else"):
        recording(module, lambda: module(x, then=True))
    assert not module._forward_pre_hooks
    assert torch.is_grad_enabled()
    with torch.no_grad(), pytest.raises(ZeroDivisionError):
        recording(module, lambda: 1 / 0)
    assert not module._forward_hooks
