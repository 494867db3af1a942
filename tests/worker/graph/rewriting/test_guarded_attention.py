"""Attention of torch's own layers, exported by torch: a fully masked row is zero, as torch
says, and what needs no guard gets none.
"""

import warnings

import numpy as np
import onnx_ir
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from convkit.worker.graph.rewriting.guarded_attention import guard_attention

X = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))
NONE = torch.zeros(2, 5, dtype=torch.bool)
WHOLE = torch.tensor([[True] * 5, [False, False, True, False, True]])


class Attending(nn.Module):
    """nn.MultiheadAttention with a padding mask, and perhaps a mask of the future."""

    def __init__(self, *, causal: bool, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, dtype=dtype)
        self.causal = causal

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        future = torch.full((5, 5), float("-inf"), dtype=x.dtype).triu(1) if self.causal else None
        marked = torch.zeros(mask.shape, dtype=x.dtype).masked_fill(mask, float("-inf"))
        return self.attention(
            x, x, x, key_padding_mask=marked, attn_mask=future, need_weights=False
        )[0]


class Own(nn.Module):
    """A softmax of the model's own code, which is NaN for such a row in torch as well."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        scores = (x @ x.transpose(1, 2)).masked_fill(mask[:, None], float("-inf"))
        return scores.softmax(-1) @ x


class Causal(nn.Module):
    """A constant mask, in which no row is fully masked."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        future = torch.ones(5, 5, dtype=torch.bool).triu(1)
        bias = torch.zeros(5, 5).masked_fill(future, float("-inf"))
        heads = x[:, None]
        return (
            functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=bias)
            + 0 * (mask[:, None, :, None])
        )


class Finite(nn.Module):
    """A finite stand-in for minus infinity, as transformers uses: uniform in torch as well."""

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        least = torch.finfo(torch.float32).min
        bias = torch.zeros(2, 1, 1, 5).masked_fill(mask[:, None, None], least)
        heads = x[:, None]
        return functional.scaled_dot_product_attention(heads, heads, heads, attn_mask=bias)


def exported(module: nn.Module, dtype: torch.dtype = torch.float32) -> onnx_ir.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(module.eval(), (X.to(dtype), NONE))
        made = torch.onnx.export(
            program, dynamo=True, opset_version=18, optimize=False, verbose=False
        )
    assert made is not None
    return made.model


def run(model: onnx_ir.Model, mask: torch.Tensor, x: torch.Tensor = X) -> np.ndarray:
    session = onnxruntime.InferenceSession(onnx_ir.to_proto(model).SerializeToString())
    return session.run(None, {"x": x.numpy(), "mask": mask.numpy()})[0]


@pytest.mark.parametrize("causal", [False, True])
def test_a_row_that_is_masked_whole_is_what_torch_says(causal: bool) -> None:
    module = Attending(causal=causal)
    model = exported(module)
    assert np.isnan(run(model, WHOLE)).any()  # what a guard is for
    usual = run(model, NONE)
    assert guard_attention(model) == 1
    assert guard_attention(model) == 0
    with torch.no_grad():
        expected = module(X, WHOLE).numpy()
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(run(model, WHOLE), expected, atol=1e-6)
    np.testing.assert_array_equal(run(model, NONE), usual)


@pytest.mark.thorough
def test_half_precision_is_guarded_in_its_own_type() -> None:
    module = Attending(causal=False, dtype=torch.float16)
    model = exported(module, torch.float16)
    assert guard_attention(model) == 1
    found = run(model, WHOLE, X.half())
    assert found.dtype == np.float16
    assert np.isfinite(found).all()


@pytest.mark.parametrize(
    "module", [Own(), Causal(), Finite()], ids=lambda each: type(each).__name__
)
@pytest.mark.sampled(2)
def test_what_needs_no_guard_stays_as_it_is(module: nn.Module) -> None:
    model = exported(module)
    before = [node.op_type for node in model.graph]
    assert guard_attention(model) == 0
    assert [node.op_type for node in model.graph] == before
