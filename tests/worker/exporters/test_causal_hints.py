"""nn.Transformer's layers with a mask of the future are traced with an open length."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.modules import transformer

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.exporters.dynamic_trace import trace
from convkit.worker.exporters.traceable_layers import without_causal_detection

BATCH, SEQUENCE = Axis("batch", 1, 2, 4), Axis("sequence", 2, 6, 12)
SHAPE = ("batch", "sequence", 8)
CONTRACT = Contract(
    (TensorSpec("x", "float32", SHAPE),), (TensorSpec("y", "float32", SHAPE),), (BATCH, SEQUENCE)
)


class Causal(nn.Module):
    """A language model's layers; `mask` makes the mask that they are given."""

    def __init__(self, kind: str, hint: bool | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.kind, self.hint = kind, hint

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        length = x.shape[1]
        mask = (
            torch.ones(length, length, dtype=torch.bool).triu(1)
            if self.kind == "bool"
            else nn.Transformer.generate_square_subsequent_mask(length)
        )
        if self.kind == "window":  # no causal mask, though it looks like one
            mask = mask + mask.T.roll(-3, 0).nan_to_num(0.0, 0.0, 0.0)
        return self.layers(x, mask=mask, is_causal=self.hint)


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        *(("bool", None), ("window", None), ("float", True)),
        pytest.param("float", None, marks=pytest.mark.thorough),
        pytest.param("bool", True, marks=pytest.mark.thorough),
    ],
)
def test_the_trace_computes_what_the_module_does_at_other_lengths(
    kind: str, hint: bool | None
) -> None:
    module = Causal(kind, hint).eval()
    x = torch.randn(2, 12, 8, generator=torch.Generator().manual_seed(0))
    program = trace(module, (x[:, :6].contiguous(),), CONTRACT).module()
    for length in (2, 6, 12):
        with torch.no_grad():
            expected, found = module(x[:, :length]), program(x[:, :length])
        np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-6, err_msg=str(length))


def test_torchs_own_detection_comes_back() -> None:
    usual = transformer._detect_is_causal_mask
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    with without_causal_detection():
        assert not transformer._detect_is_causal_mask(mask)
        assert transformer._detect_is_causal_mask(mask, is_causal=True)
    assert transformer._detect_is_causal_mask is usual
    assert transformer._detect_is_causal_mask(mask)
