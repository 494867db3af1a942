"""`exporter: auto`: the first exporter whose graph is right, and what was wrong with the others."""

import re

import numpy as np
import pytest
from tiny_models import AXES, X, export_factory, module, run_onnx, tensor

from convkit.protocol.contract import Contract, DataAxis

SAME_SHAPE = Contract((X,), (tensor("y", *X.shape),), AXES)

RECURRENT = """
class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = torch.nn.{layer}
    def forward(self, x):
        {forward}
def build():
    return Module()
"""
PACKED = """
        lengths = torch.full((x.shape[0],), x.shape[1], dtype=torch.int64)
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True)
        return torch.nn.utils.rnn.pad_packed_sequence(self.rnn(packed)[0], batch_first=True)[0]
"""
EXPERTS = """
from transformers import MixtralConfig, MixtralModel

class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        config = MixtralConfig(
            vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2, num_local_experts=3,
            num_experts_per_tok=2, attn_implementation="eager", experts_implementation="{experts}",
        )
        self.model = MixtralModel(config)
        self.inner = torch.nn.Linear(4, 8)
        self.outer = torch.nn.Linear(8, 4)
    def forward(self, x):
        hidden = self.model(inputs_embeds=self.inner(x), use_cache=False).last_hidden_state
        return self.outer(hidden)
def build():
    return Module()
"""
MAMBA = """
from transformers import MambaConfig, MambaModel

class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        config = MambaConfig(vocab_size=16, hidden_size=8, state_size=4, num_hidden_layers=1)
        self.model = MambaModel(config)
        self.inner = torch.nn.Linear(4, 8)
        self.outer = torch.nn.Linear(8, 4)
    def forward(self, x):
        hidden = self.model(inputs_embeds=self.inner(x), use_cache=False).last_hidden_state
        return self.outer(hidden)
def build():
    return Module()
"""


def told(findings, code):
    (finding,) = [each for each in findings if each.code == code]
    return finding


def test_torch_is_taken_if_its_graph_is_right(tmp_path):
    result, findings, out = export_factory(tmp_path, module("return x * 2"), SAME_SHAPE, "auto")
    finding = told(findings, "E303")
    assert finding.severity == "note"
    assert finding.evidence["exporter"] == "torch"
    assert finding.evidence["refused"] == {}
    assert result.graph.outputs == SAME_SHAPE.outputs
    x = np.ones((2, 3, 4), np.float32)
    np.testing.assert_array_equal(run_onnx(out, {"x": x})[0], 2 * x)


@pytest.mark.parametrize(
    ("layer", "forward"),
    [
        ("RNN(4, 4, batch_first=True)", "return self.rnn(x)[0]"),
        ("GRU(4, 4, batch_first=True)", PACKED.strip()),
    ],
    ids=["RNN", "packed GRU"],
)
@pytest.mark.sampled(1)
def test_recurrent_layers_go_to_torchscript_with_the_reason(tmp_path, layer, forward):
    code = RECURRENT.format(layer=layer, forward=forward)
    result, findings, _ = export_factory(tmp_path, code, SAME_SHAPE, "auto")
    finding = told(findings, "E303")
    assert finding.evidence["exporter"] == "torchscript"
    assert "Not torch: " in finding.message
    assert finding.evidence["error"] <= 1e-5
    assert result.graph.outputs == SAME_SHAPE.outputs
    assert not [each for each in findings if each.is_error]


# With torch 2.13 and transformers 5.23. A release that can do it fails this test: expect E303 then.
@pytest.mark.thorough
def test_a_model_that_none_can_export_says_why_for_each(tmp_path):
    _, findings, out = export_factory(tmp_path, MAMBA, SAME_SHAPE, "auto")
    finding = told(findings, "E304")
    why = "torch: .*fixes axis 'sequence'.*; torchscript: .*model.layers.0.mixer"
    assert re.search(why, finding.message)
    assert "Python loop over 'sequence'" in finding.remedy.text
    assert finding.evidence["refused"].keys() == {"torch", "torchscript", "optimum"}
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    "experts", ["grouped_mm", pytest.param("eager", marks=pytest.mark.thorough)]
)
def test_experts_are_exported_whichever_way_the_original_computes_them(tmp_path, experts):
    code = EXPERTS.format(experts=experts)
    result, findings, _ = export_factory(tmp_path, code, SAME_SHAPE, "auto")
    assert told(findings, "E303").evidence["exporter"] == "torch"
    assert result.graph.outputs == SAME_SHAPE.outputs


def test_what_no_exporter_can_do_is_said_in_one_sentence(tmp_path):
    code = module("return x + 1 if x.sum() > 0 else x - 1")
    _, findings, out = export_factory(tmp_path, code, SAME_SHAPE, "auto")
    finding = told(findings, "E304")
    assert finding.message.startswith("no exporter can convert this model: torch: ")
    assert "torchscript: would keep one side of the branch on values at factory.py:" in (
        finding.message
    )
    assert "\n" not in finding.message
    assert list(out.iterdir()) == []


def test_a_wrong_graph_is_refused_like_a_failure(tmp_path, monkeypatch):
    from convkit.worker.exporters import torch_exporter as first

    exported = first.export

    def wrong(job):
        model = exported(job)
        for node in model.graph:
            if node.op_type == "Mul":
                node.op_type = "Add"
        return model

    monkeypatch.setattr(first, "export", wrong)
    _, findings, _ = export_factory(tmp_path, module("return x * 3"), SAME_SHAPE, "auto")
    finding = told(findings, "E303")
    assert finding.evidence["exporter"] == "torchscript"
    assert "differs from the original at" in finding.evidence["refused"]["torch"]


KEPT = Contract((X,), (tensor("y", "kept"),), AXES, (DataAxis("kept", 4096),))


def test_a_branch_on_a_count_names_the_line_and_the_check(tmp_path):
    body = "k = x[x > 0]\n        if k.shape[0] > 3:\n            return k + 1\n        return k"
    _, findings, _ = export_factory(tmp_path, module(body), KEPT)
    finding = told(findings, "E305")
    assert finding.place.source is not None
    assert finding.place.source.startswith("factory.py:")
    assert finding.evidence["line"] == "if k.shape[0] > 3:"
    assert "torch._check(k.shape[0] > 3)" in finding.remedy.text


def test_the_check_that_is_advised_works(tmp_path):
    lines = (
        "k = x[x > 0]",
        "torch._check(k.shape[0] > 3)",
        "if k.shape[0] > 3:",
        "    return k + 1",
        "return k",
    )
    body = "\n        ".join(lines)
    result, findings, _ = export_factory(tmp_path, module(body), KEPT)
    assert findings == []
    assert result.graph.outputs == KEPT.outputs


def test_a_branch_on_a_value_is_no_matter_for_a_check(tmp_path):
    body = "return x + 1 if x.sum() > 0 else x - 1"
    _, findings, _ = export_factory(tmp_path, module(body), SAME_SHAPE)
    finding = told(findings, "E305")
    assert "torch.cond" in finding.remedy.text
    assert "torch._check" not in finding.remedy.text
