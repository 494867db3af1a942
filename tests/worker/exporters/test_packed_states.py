"""Recurrent layers over packed sequences, as classifiers of texts use them: the last state only."""

import numpy as np
import pytest
import torch
from tiny_models import AXES, X, export_factory, run_onnx, tensor
from torch.nn.utils import rnn

from convkit.protocol.contract import Contract
from convkit.protocol.messages import Sample
from convkit.worker.exporters.packed_states import explicit_states

CODE = """
import torch
from torch.nn.utils.rnn import pack_padded_sequence

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = torch.nn.{cell}(4, 3, batch_first=True, {options})

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted={sort})
        last = self.cell(packed)[1]
        return (last[0] if isinstance(last, tuple) else last)[-1]

def build():
    torch.manual_seed(0)
    return Model().eval()
"""


@pytest.mark.parametrize(
    ("cell", "options", "sort"),
    [("GRU", "bidirectional=True", False), ("LSTM", "", False), ("RNN", "", True)],
)
def test_the_last_state_of_a_packed_sequence_is_exported(tmp_path, cell, options, sort):
    code = CODE.format(cell=cell, options=options, sort=sort)
    lengths = tensor("lengths", "batch", dtype="int64")
    sample = Sample("constant", (2.0,)) if sort else Sample("integers", (1.0, 3.0))
    contract = Contract((X, lengths), (tensor("y", "batch", 3),), AXES)
    _, findings, out = export_factory(
        tmp_path, code, contract, "torchscript", samples={"lengths": sample}
    )
    assert findings == []
    scope: dict[str, object] = {}
    exec(code, scope)
    model = scope["build"]()
    x = np.random.default_rng(0).normal(size=(3, 9, 4)).astype(np.float32)
    rows = np.array([9, 5, 2] if sort else [2, 9, 5])
    (y,) = run_onnx(out, {"x": x, "lengths": rows})
    np.testing.assert_allclose(
        y, model(torch.from_numpy(x), torch.from_numpy(rows)).detach(), atol=1e-6
    )


def test_a_state_that_the_model_passes_is_kept_and_nothing_is_left_behind():
    layer = torch.nn.GRU(4, 3, batch_first=True)
    packed = rnn.pack_padded_sequence(torch.rand(2, 5, 4), torch.tensor([5, 3]), batch_first=True)
    before, pack = layer(packed, torch.ones(1, 2, 3))[1], rnn._VF._pack_padded_sequence
    with explicit_states(layer):
        assert torch.equal(layer(packed, torch.ones(1, 2, 3))[1], before)
        assert rnn._VF._pack_padded_sequence is not pack
    assert rnn._VF._pack_padded_sequence is pack
    assert not layer._forward_pre_hooks
