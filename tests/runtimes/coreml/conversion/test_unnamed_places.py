"""A wrong translation is placed at its node although coremltools names no tensor after it."""

import pytest
import torch
from coreml_modules import behind_contract, converted
from torch import nn

from convkit.runtimes.coreml.conversion import module_conversion
from convkit.runtimes.coreml.conversion.corrections import OWN
from convkit.runtimes.coreml.conversion.missing_operators import register_missing_operators
from convkit.runtimes.coreml.node_divergence import find_divergence


class Scaled(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x / (1 + x.std()))


def test_it_is_placed_at_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

    register_missing_operators()
    known = _TORCH_OPS_REGISTRY.name_to_func_mapping
    monkeypatch.setitem(known, "std.correction", OWN["std.correction"])
    monkeypatch.setattr(module_conversion, "register_missing_operators", lambda: None)
    x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    module = behind_contract(Scaled(), {"x": x}, ["y"])
    expected = {"y": Scaled()(x).numpy()}
    divergence = find_divergence(converted(module, {"x": x}), {"x": x}, expected)
    assert divergence.is_proven
    (place,) = divergence.partings
    assert (place.operation, place.origin.name) == ("sqrt", "std")
