"""Where torch's exporter fails: TorchScript's, seen to work, or the line that is at fault."""

import numpy as np
import pytest
import torch
from tiny_models import AXES, X, export_factory, factory_source, module, run_onnx, tensor

from convkit.protocol.contract import Contract
from convkit.worker.original.loading import load_model

CONTRACT = Contract((X,), (tensor("y", *X.shape),), AXES)


def recurrent(layer, forward):
    return f"""
class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.{layer}
    def forward(self, x):
        {forward}
def build():
    return Module()
"""


def test_a_recurrent_layer_without_a_translation_needs_torchscript(tmp_path):
    forward = "return self.rnn(x.transpose(0, 1))[0].transpose(0, 1)"
    _, (finding,), out = export_factory(tmp_path, recurrent("RNN(4, 4, 2)", forward), CONTRACT)
    assert finding.code == "E301"
    assert finding.remedy.change == {"export.exporter": "torchscript"}
    assert finding.place.module == "rnn"
    assert "own code" not in finding.message
    assert finding.evidence["error"] <= 1e-5
    assert {"batch": 16, "sequence": 5} in finding.evidence["compared"]
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("layer", "forward"),
    [
        ("GRU(4, 4, batch_first=True)", "return self.rnn(x)[0]"),
        ("LSTM(4, 2, 2, batch_first=True, bidirectional=True)", "return self.rnn(x)[0]"),
        (
            "GRU(4, 4, bias=False)",
            "y, h = self.rnn(x.transpose(0, 1), x[None, :, 0]); return (y + h).transpose(0, 1)",
        ),
    ],
)
@pytest.mark.sampled(2)
def test_a_recurrent_layer_with_a_node_keeps_its_steps_open(tmp_path, layer, forward):
    code = recurrent(layer, forward)
    _, findings, out = export_factory(tmp_path, code, CONTRACT)
    assert not findings
    original = load_model(factory_source(tmp_path, code)).module
    for batch, steps in ((1, 1), (2, 5), (3, 40)):
        x = torch.randn(batch, steps, 4, generator=torch.Generator().manual_seed(steps))
        with torch.no_grad():
            expected = original(x).numpy()
        (found,) = run_onnx(out, {"x": x.numpy()})
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_torchscript_is_not_offered_where_it_fails_too(tmp_path):
    forward = "n = int(x.shape[1]); return self.rnn(x)[0].reshape(-1, n, 4)"
    code = recurrent("RNN(4, 4, batch_first=True)", forward)
    _, (finding,), _ = export_factory(tmp_path, code, CONTRACT)
    assert finding.code == "C106"
    assert finding.place.source == "factory.py:8"
    assert finding.remedy.change == {}


@pytest.mark.thorough
def test_torchscript_is_not_offered_where_its_graph_is_wrong(tmp_path):
    forward = "y = self.rnn(x)[0]; return y * 2 if x.shape[1] > 30 else y"
    code = recurrent("RNN(4, 4, batch_first=True)", forward)
    _, findings, _ = export_factory(tmp_path, code, CONTRACT)
    assert "E301" not in [finding.code for finding in findings]
    (finding,) = [each for each in findings if each.code == "C106"]
    assert "nn.RNN 'rnn'" in finding.message
    assert "own code" not in finding.message


@pytest.mark.thorough
def test_the_branch_that_restricts_an_axis_is_named(tmp_path):
    code = module("return x * 2 if x.shape[1] > 12 else x")
    _, (finding,), _ = export_factory(tmp_path, code, CONTRACT)
    assert finding.code == "C113"
    assert finding.place.source == "factory.py:5"
    assert "between sequence 12 and 13" in finding.message
    assert finding.remedy.change == {"axes.sequence.max": 12}


@pytest.mark.thorough
def test_multiples_of_an_axis_are_no_change_of_its_range(tmp_path):
    code = module("return x * 2 if x.shape[1] % 5 == 0 else x")
    _, (finding,), _ = export_factory(tmp_path, code, CONTRACT)
    assert finding.place.source == "factory.py:5"
    assert finding.remedy.change == {}


def test_a_branch_on_values_is_never_left_to_a_trace(tmp_path):
    code = module("return x if x.sum() > 0 else -x")
    _, (finding,), _ = export_factory(tmp_path, code, CONTRACT)
    assert finding.code == "E305"
    assert finding.place.source == "factory.py:5"
