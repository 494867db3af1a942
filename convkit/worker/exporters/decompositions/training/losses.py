"""Losses that torch's exporter gets wrong, or writes as graphs that no runtime reads.

`reduction` is torch's number of none, mean or sum.
"""

import torch


def cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> torch.Tensor:
    """`F.cross_entropy`, whose translation divides a smoothed loss that is not reduced by its size,
    and takes probabilities for numbers of classes.
    """
    axis = min(1, logits.ndim - 1)
    classes = logits.shape[axis]
    logarithms = logits.log_softmax(axis)
    if weight is not None:
        weight = weight.reshape(-1, *[1] * (logits.ndim - 1 - axis))
    weighted = logarithms if weight is None else logarithms * weight
    if target.is_floating_point():
        smooth = target * (1 - label_smoothing) + label_smoothing / classes
        return _reduced(-(weighted * smooth).sum(axis), reduction)
    is_counted = target != ignore_index
    numbers = torch.where(is_counted, target, 0).unsqueeze(axis)
    own = -weighted.gather(axis, numbers).squeeze(axis)
    spread = -weighted.sum(axis) * (label_smoothing / classes)
    loss = torch.where(is_counted, own * (1 - label_smoothing) + spread, 0)
    if reduction != 1:
        return _reduced(loss, reduction)
    count = torch.ones_like(own)
    if weight is not None:
        count = weight.expand(logits.shape).gather(axis, numbers).squeeze(axis)
    return loss.sum() / torch.where(is_counted, count, 0).sum()


def is_smoothed(
    logits: torch.Tensor,  # noqa: ARG001
    target: torch.Tensor,
    weight: torch.Tensor | None = None,  # noqa: ARG001
    reduction: int = 1,  # noqa: ARG001
    ignore_index: int = -100,  # noqa: ARG001
    label_smoothing: float = 0.0,
) -> bool:
    """Say whether a cross entropy is one of those."""
    return label_smoothing > 0 or target.is_floating_point()


def multilabel_margin(x: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    """`F.multilabel_margin_loss`: a row's labels end at the first -1."""
    is_label = (target < 0).to(torch.int64).cumsum(-1) == 0
    numbers = torch.where(is_label, target, 0)
    hits = (numbers.unsqueeze(-1) == torch.arange(x.shape[-1])) & is_label.unsqueeze(-1)
    others = ~hits.any(-2, keepdim=True) & is_label.unsqueeze(-1)
    margins = (1 - x.gather(-1, numbers).unsqueeze(-1) + x.unsqueeze(-2)).clamp_min(0)
    loss = torch.where(others, margins, 0).sum((-2, -1)) / x.shape[-1]
    return _reduced(loss, reduction)


def _reduced(loss: torch.Tensor, reduction: int) -> torch.Tensor:
    return (loss, loss.mean(), loss.sum())[reduction] if loss.ndim else loss
