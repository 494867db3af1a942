"""`F.embedding_bag` of rows of ids, in operators that keep their number open. torch makes one list
of all ids, with the places where each row begins, which hold the sizes of the trace.
"""

import torch
from torch.nn import functional


def embedding_bag(
    input: torch.Tensor,  # noqa: A002 - torch's
    weight: torch.Tensor,
    offsets: torch.Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,  # noqa: FBT001, FBT002 - torch's
    mode: str = "mean",
    sparse: bool = False,  # noqa: FBT001, FBT002 - torch's
    per_sample_weights: torch.Tensor | None = None,
    include_last_offset: bool = False,  # noqa: FBT001, FBT002 - torch's
    padding_idx: int | None = None,
) -> torch.Tensor:
    """Return the bags, shape (rows, columns), of ids of shape (rows, ids): their sum, mean or
    maximum, without those that are `padding_idx`. A bag without ids is zero.
    """
    if offsets is not None:
        return functional.embedding_bag(
            input,
            weight,
            offsets,
            max_norm,
            norm_type,
            scale_grad_by_freq,
            mode,
            sparse,
            per_sample_weights,
            include_last_offset,
            padding_idx,
        )
    rows = functional.embedding(input, weight, max_norm=max_norm, norm_type=norm_type)
    if per_sample_weights is not None:
        rows = rows * per_sample_weights.unsqueeze(-1)
    if padding_idx is None:
        return _together(rows, mode)
    counts = (input != padding_idx % weight.shape[0]).unsqueeze(-1)
    if mode == "max":
        held = torch.where(counts, rows, -torch.inf).amax(1)
        return torch.where(counts.any(1), held, 0.0)
    found = torch.where(counts, rows, 0.0).sum(1)
    return found / counts.sum(1).clamp(min=1).to(rows.dtype) if mode == "mean" else found


def _together(rows: torch.Tensor, mode: str) -> torch.Tensor:
    if mode == "max":
        return rows.amax(1)
    return rows.mean(1) if mode == "mean" else rows.sum(1)
