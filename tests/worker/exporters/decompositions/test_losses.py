"""Losses are torch's: with weights, labels that do not count, and each reduction."""

import pytest
import torch
from torch.nn import functional

from convkit.worker.exporters.decompositions.training import losses

REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}
LOGITS = torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([[0, 1, -100], [3, 2, 2], [1, 1, 1], [-100, 0, 3], [2, 2, 0]])
WEIGHTS = torch.tensor([1.0, 2, 3, 0.5])


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weight", [None, WEIGHTS])
def test_cross_entropies(reduction: str, weight: torch.Tensor | None) -> None:
    for logits, target in (
        (LOGITS, LABELS),
        (LOGITS[..., 0], LABELS[:, 1]),
        (LOGITS[0, :, 0], torch.tensor(2)),
        (LOGITS, LOGITS.flip(0).softmax(1)),
    ):
        for smoothing in (0.0, 0.2):
            found = losses.cross_entropy(
                logits, target, weight, REDUCTIONS[reduction], -100, smoothing
            )
            expected = functional.cross_entropy(
                logits, target, weight, reduction=reduction, label_smoothing=smoothing
            )
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_margins_of_several_labels(reduction: str) -> None:
    x = LOGITS.reshape(12, 5)[:4]
    target = torch.tensor([[1, 3, -1, 0, 0], [0, -1, 2, 1, 1], [-1, 1, 1, 1, 1], [4, 3, 2, 1, 0]])
    for given, labels in ((x, target), (x[0], target[0])):
        found = losses.multilabel_margin(given, labels, REDUCTIONS[reduction])
        expected = functional.multilabel_margin_loss(given, labels, reduction=reduction)
        torch.testing.assert_close(found, expected)
