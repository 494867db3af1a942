"""Layers over padded sequences give what torch gives over packed ones."""

from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from convkit.worker.exporters.decompositions.masked_packing import masked_packing

LAYERS = {
    "lstm": lambda: torch.nn.LSTM(3, 5, 2, bidirectional=True),
    "lstm without biases": lambda: torch.nn.LSTM(3, 5, bias=False, batch_first=True),
    "projected": lambda: torch.nn.LSTM(3, 5, proj_size=2),
    "gru": lambda: torch.nn.GRU(3, 5, 2, bidirectional=True, batch_first=True),
    "rnn": lambda: torch.nn.RNN(3, 5, bidirectional=True),
    "relu": lambda: torch.nn.RNN(3, 5, nonlinearity="relu", batch_first=True),
}


class Packing(torch.nn.Module):
    def __init__(self, layer: torch.nn.RNNBase, *, is_sorted: bool) -> None:
        super().__init__()
        self.layer, self.is_sorted = layer, is_sorted

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, ...]:
        first = self.layer.batch_first
        packed = pack_padded_sequence(x, lengths.cpu(), first, enforce_sorted=self.is_sorted)
        found, state = self.layer(packed)
        values, sizes = pad_packed_sequence(found, first, -1.0)
        return values, sizes, *(state if isinstance(state, tuple) else (state,))


def given(layer: torch.nn.RNNBase, lengths: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(max(lengths), len(lengths), 3, generator=generator)
    return (x.transpose(0, 1) if layer.batch_first else x), torch.tensor(lengths)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("lengths", [[6, 4, 1], [2, 6, 3]])
@pytest.mark.parametrize("name", LAYERS)
@torch.no_grad()
def test_outputs_and_states_are_torchs(name: str, lengths: list[int]) -> None:
    torch.manual_seed(0)
    module = Packing(LAYERS[name](), is_sorted=lengths[0] == max(lengths)).eval()
    inputs = given(module.layer, lengths)
    expected: Any = module(*inputs)
    with masked_packing(module):
        found = module(*inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    torch.testing.assert_close(module(*inputs)[0], expected[0], rtol=0, atol=0)  # as before


@pytest.mark.filterwarnings("ignore")  # torch's own deprecations, and sizes that a trace keeps
@torch.no_grad()
def test_a_trace_takes_other_lengths_and_sizes() -> None:
    torch.manual_seed(0)
    module = Packing(LAYERS["lstm"](), is_sorted=False).eval()
    with masked_packing(module):
        traced = torch.jit.trace(module, given(module.layer, [2, 6, 3]), check_trace=False)
    other = given(module.layer, [7, 1])
    for one, expected in zip(traced(*other), module(*other), strict=True):
        torch.testing.assert_close(one, expected, rtol=0, atol=1e-6)
