"""A branch on values is exported as one of its sides where the original shows that it may be."""

import numpy as np
import onnxruntime
import torch
from tiny_models import AXES, X, export_factory, tensor

from convkit.protocol.contract import Contract

CONTRACT = Contract((X,), (tensor("y", *X.shape),), AXES)

EXPERTS = """
import torch

class Experts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
    def forward(self, x):
        out = torch.zeros_like(x)
        chosen = x.argmax(-1).clamp(max=2)
        for number, layer in enumerate(self.layers):
            mask = chosen == number
            {condition}
                out[mask] = layer(x[mask])
        return out

def build():
    torch.manual_seed(0)
    return Experts().eval()
"""


def test_experts_without_rows_are_skipped_in_the_original_only(tmp_path):
    code = EXPERTS.format(condition="if mask.any():")
    _, findings, out = export_factory(tmp_path, code, CONTRACT)
    (told,) = [each for each in findings if each.code == "E309"]
    assert told.place.source == "factory.py:14"
    session = onnxruntime.InferenceSession(str(out / "model.onnx"))
    plain = {}
    exec(code, plain)
    model = plain["build"]()
    for seed in range(3):
        x = torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(seed))
        x[..., seed] += 9  # all rows for one of them
        (found,) = session.run(None, {"x": x.numpy()})
        with torch.no_grad():
            assert np.abs(found - model(x).numpy()).max() < 1e-5


def test_a_side_that_matters_is_refused_as_before(tmp_path):
    code = EXPERTS.format(condition="if mask.sum() > 2:")
    _, findings, _ = export_factory(tmp_path, code, CONTRACT)
    assert [each.code for each in findings] == ["E305"]
