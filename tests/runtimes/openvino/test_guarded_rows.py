"""Rows that a mask hides whole are 0 in attention, as in torch."""

import warnings

import openvino
import pytest
import torch
from torch import nn

from convkit.runtimes.openvino.masked_rows import guard_masked_rows


class _Attention(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor, pad: torch.Tensor) -> torch.Tensor:
        mask = ~pad[:, None, None]
        if self.kind == "float":
            mask = torch.zeros(mask.shape).masked_fill(~mask, -torch.inf)
        return nn.functional.scaled_dot_product_attention(x, x, x, mask)


def _plain(module: nn.Module, *inputs: torch.Tensor) -> openvino.Model:
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")  # torch's own deprecations
        return openvino.convert_model(torch.export.export(module, inputs))


def _run(model: openvino.Model, *inputs: torch.Tensor) -> torch.Tensor:
    compiled = openvino.compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    (found,) = compiled([each.numpy() for each in inputs]).values()
    return torch.from_numpy(found)


@pytest.mark.parametrize("kind", ["float", "boolean"])
def test_as_in_torch(kind: str) -> None:
    x, pad = torch.randn(3, 2, 5, 4), torch.arange(5)[None] >= torch.tensor([5, 0, 3])[:, None]
    module = _Attention(kind).eval()
    model = _plain(module, x, pad)
    assert _run(model, x, pad)[1].isnan().all(), "OpenVINO's own operator is right now"
    assert guard_masked_rows(model) == 1
    assert torch.allclose(_run(model, x, pad), module(x, pad), atol=1e-5)


def test_a_constant_mask_is_left_alone() -> None:
    class Causal(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer(
                "mask",
                torch.ones(5, 5)
                .log()
                .masked_fill_(torch.ones(5, 5, dtype=torch.bool).triu(1), -torch.inf),
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(x, x, x, self.mask)

    assert guard_masked_rows(_plain(Causal().eval(), torch.randn(3, 2, 5, 4))) == 0
