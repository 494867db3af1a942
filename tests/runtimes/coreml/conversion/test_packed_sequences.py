"""Recurrent layers over packed sequences, which coremltools takes for one size only."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_modules import BATCH, SEQUENCE, behind_contract, converted, evaluated, saved
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class Tagger(nn.Module):
    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        found, state = self.layer(packed)
        values, _ = pad_packed_sequence(found, batch_first=True, total_length=x.shape[1])
        last = state[0] if isinstance(state, tuple) else state
        return values + last[-1].unsqueeze(1).mean(-1, keepdim=True)


@pytest.mark.parametrize(
    "layer",
    [nn.LSTM(4, 3, batch_first=True, bidirectional=True), nn.GRU(4, 3, batch_first=True)],
    ids=["lstm", "gru"],
)
def test_each_sequence_ends_at_its_length(layer: nn.RNNBase, tmp_path: Path) -> None:
    module = Tagger(layer.requires_grad_(False)).eval()
    inputs = {"x": torch.randn(2, 7, 4), "lengths": torch.tensor([7, 4])}
    behind = behind_contract(module, inputs, ["y"], (BATCH,))
    shapes = {"x": ("batch", "sequence", 4), "lengths": ("batch",)}
    contract = behind.contract
    behind.contract = replace(
        contract,
        inputs=tuple(replace(each, shape=shapes[each.name]) for each in contract.inputs),
        outputs=tuple(
            replace(each, shape=("batch", "sequence", each.shape[-1])) for each in contract.outputs
        ),
        axes=(BATCH, SEQUENCE),
    )
    program = saved(converted(behind, inputs), tmp_path)
    for sizes in ([7, 4], [3, 9, 1]):
        given = {"x": torch.randn(len(sizes), max(sizes), 4), "lengths": torch.tensor(sizes)}
        with torch.no_grad():
            expected = module(**given).numpy()
        found = evaluated(program, given)["y"]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
