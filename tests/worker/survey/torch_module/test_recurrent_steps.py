"""The steps of recurrent layers that torch's exporter would write out."""

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence

from convkit.worker.survey.torch_module.recurrent_steps import recurrent_steps


class Packed(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = torch.nn.GRU(4, 3, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        lengths = torch.full((len(x),), x.shape[1] - 2)
        return self.rnn(pack_padded_sequence(x, lengths, batch_first=True))[1]


class Refusing(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ValueError(x)


@pytest.mark.parametrize(
    ("module", "shape", "steps"),
    [
        (torch.nn.LSTM(4, 3, 2, True, True, 0.0, True, 2), (5, 7, 4), 28),
        (torch.nn.RNN(4, 3), (7, 5, 4), 7),
        (torch.nn.RNN(4, 3, batch_first=True), (7, 4), 7),
        (torch.nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True), (5, 7, 4), 0),
        (Packed(), (2, 7, 4), 5),
        (torch.nn.Linear(4, 3), (7, 4), 0),
        (Refusing(), (7, 4), 0),
    ],
)
def test_steps_are_counted_over_layers_and_directions(
    module: torch.nn.Module, shape: tuple[int, ...], steps: int
) -> None:
    assert recurrent_steps(module, [torch.ones(shape)]) == steps
    assert not any(each._forward_pre_hooks for each in module.modules())
