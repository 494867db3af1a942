"""Products of matrices, and attention made of them."""

import math

import torch
from torch.nn import functional

from convkit.mil.call import Call


def linear(call: Call) -> torch.Tensor:
    """`x @ weight.T + bias`, `weight` of shape [out, in]."""
    return functional.linear(call.tensor("x"), call.tensor("weight"), call.optional("bias"))


def matmul(call: Call) -> torch.Tensor:
    """Product of the last two axes, broadcast over the others; either side may be
    transposed first.
    """
    x, y = call.tensor("x"), call.tensor("y")
    x = x.transpose(-1, -2) if call.flag("transpose_x") and x.dim() > 1 else x
    y = y.transpose(-1, -2) if call.flag("transpose_y") and y.dim() > 1 else y
    return torch.matmul(x, y)


def einsum(call: Call) -> torch.Tensor:
    """Einstein summation."""
    return torch.einsum(call.text("equation"), *call.tensors("values"))


def scaled_dot_product_attention(call: Call) -> torch.Tensor:
    """`softmax(query @ key.T / sqrt(width) + mask) @ value`; a boolean mask marks what takes part.

    Written out rather than left to torch's own: that one gives zeros for a row in which nothing
    takes part, where the formula gives NaN.
    """
    query, key = call.tensor("query"), call.tensor("key")
    scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
    mask = call.optional("attn_mask")
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return torch.matmul(torch.softmax(scores, -1), call.tensor("value"))
