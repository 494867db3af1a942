"""Which modules a draft takes for convolving ones."""

import pytest
import torch
from torch.nn import GRU, Conv1d, ConvTranspose2d, Embedding, Linear, Sequential

from convkit.worker.survey.torch_module.number_types import convolves


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (Sequential(Conv1d(2, 8, 5), Linear(8, 2)), True),
        (ConvTranspose2d(2, 8, 5), True),
        (Sequential(Conv1d(2, 8, 5), Linear(80, 80)), False),
        (Sequential(Conv1d(2, 8, 5), Embedding(100, 8)), False),
        (Sequential(Conv1d(2, 8, 5), GRU(16, 16)), False),
        (torch.nn.ReLU(), False),
    ],
    ids=lambda each: str(each)[:24],
)
def test_most_weights_decide(module: torch.nn.Module, *, expected: bool) -> None:
    assert convolves(module) is expected
