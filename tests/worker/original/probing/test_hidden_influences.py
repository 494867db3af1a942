import pytest
from tiny_models import BERT_SAMPLES, bert_contract, save_bert, tensor

from convkit.protocol.messages import Source
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading import load_model
from convkit.worker.original.probing.contract_probe import Examples, probe
from convkit.worker.original.probing.hidden_influences import tokenizer_findings, unloaded_findings


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    return save_bert(tmp_path_factory.mktemp("saved") / "bert", tokenizer=True)


def examine(folder, contract, **source):
    loaded = load_model(Source("path", path=str(folder), **source))
    module = ContractModule(loaded, contract)
    examples = Examples(contract, BERT_SAMPLES, loaded)
    return loaded, module, examples, probe(module, examples)


def test_a_tokenizers_input_that_matters_and_is_left_out(saved):
    _, module, examples, base = examine(saved, bert_contract("input_ids", "attention_mask"))
    (finding,) = tokenizer_findings(module, examples, base, ())
    assert (finding.code, finding.place.tensor) == ("C111", "token_type_ids")
    assert "model.omit" in finding.remedy.text
    assert tokenizer_findings(module, examples, base, ("token_type_ids",)) == []


def test_a_complete_contract_is_no_finding(saved):
    _, module, examples, base = examine(saved, bert_contract())
    assert tokenizer_findings(module, examples, base, ()) == []


def test_an_input_without_influence_is_no_finding(saved):
    loaded, module, examples, base = examine(saved, bert_contract("input_ids", "attention_mask"))
    loaded.module.embeddings.token_type_embeddings.weight.zero_()
    base = probe(module, examples)
    assert tokenizer_findings(module, examples, base, ()) == []


def test_random_weights_behind_a_declared_output(saved):
    contract = bert_contract(outputs=(tensor("logits", "batch", 2),))
    loaded, module, _, base = examine(saved, contract, task="text-classification")
    before = loaded.module.classifier.weight.clone()
    (finding,) = unloaded_findings(module, base, loaded)
    assert finding.code == "C114"
    assert finding.evidence["weights"] == ["classifier.bias", "classifier.weight"]
    assert (loaded.module.classifier.weight == before).all()


def test_random_weights_that_the_outputs_do_not_need(tmp_path, saved):
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "without-pooler"
    folder.mkdir()
    (folder / "config.json").write_bytes((saved / "config.json").read_bytes())
    weights = load_file(saved / "model.safetensors")
    kept = {name: value for name, value in weights.items() if not name.startswith("pooler")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    loaded, module, _, base = examine(folder, bert_contract())
    assert loaded.unloaded == ("pooler.dense.bias", "pooler.dense.weight")
    assert unloaded_findings(module, base, loaded) == []
    pooled = bert_contract(outputs=(tensor("pooler_output", "batch", 32),))
    loaded, module, _, base = examine(folder, pooled)
    assert [finding.code for finding in unloaded_findings(module, base, loaded)] == ["C114"]


def test_all_that_a_tokenizer_gives_is_put_in_at_its_place(saved):
    _, module, examples, base = examine(saved, bert_contract("token_type_ids", "input_ids"))
    (finding,) = tokenizer_findings(module, examples, base, ())
    new = {
        "name": "attention_mask",
        "dtype": "int64",
        "shape": ["batch", "sequence"],
        "sample": "padding_mask",
    }
    assert finding.remedy.change == {
        "inputs": [{"name": "token_type_ids"}, {"name": "input_ids"}, new]
    }
    _, module, examples, base = examine(saved, bert_contract("input_ids"))
    both = tokenizer_findings(module, examples, base, ())
    lists = [finding.remedy.change["inputs"] for finding in both]
    assert [item["name"] for item in lists[0]] == ["input_ids", "attention_mask", "token_type_ids"]
    assert lists[0] == lists[1]
    assert lists[0][2]["sample"] == {"integers": [0, 2]}
