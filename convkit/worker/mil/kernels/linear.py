"""Matrix products, and attention."""

import math

import torch
from torch.nn import functional

from convkit.worker.mil.kernels.arithmetic import widened
from convkit.worker.mil.kernels.operation_call import OperationCall

# How many elements of a weight are widened at once: 32 MiB in float64.
_MOST_WIDENED = 1 << 22


def linear(call: OperationCall) -> torch.Tensor:
    """`x @ weight.T + bias`; `weight` of shape [out, in] is as stored, and widened some rows at a
    time.
    """
    x, weight, bias = call.tensor("x"), call.tensor("weight"), call.optional("bias")
    rows = max(1, _MOST_WIDENED // max(weight.shape[1], 1))
    parts = []
    for start in range(0, max(len(weight), 1), rows):
        part = widened(weight[start : start + rows])
        parts.append(functional.linear(x, part, None if bias is None else bias[start:][:rows]))
    return parts[0] if len(parts) == 1 else torch.cat(parts, -1)


def matmul(call: OperationCall) -> torch.Tensor:
    """Product over the last two axes, broadcast over the others; either side may be transposed
    first.
    """
    x, y = call.tensor("x"), call.tensor("y")
    x = x.transpose(-1, -2) if call.flag("transpose_x") and x.dim() > 1 else x
    y = y.transpose(-1, -2) if call.flag("transpose_y") and y.dim() > 1 else y
    return torch.matmul(x, y)


def scaled_dot_product_attention(call: OperationCall) -> torch.Tensor:
    """`softmax(query @ key.T / sqrt(width) + mask) @ value`; a boolean mask selects the keys that
    participate.

    Written out instead of using torch's own, which returns zeros for a fully masked row, where the
    formula yields NaN.
    """
    query, key = call.tensor("query"), call.tensor("key")
    scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(query.shape[-1])
    mask = call.optional("attn_mask")
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask
    return torch.matmul(torch.softmax(scores, -1), call.tensor("value"))
