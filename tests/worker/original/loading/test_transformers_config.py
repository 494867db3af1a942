import dataclasses

import pytest
import torch
from tiny_models import bert_source

from convkit.protocol.messages import Source
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading import load_model
from convkit.worker.original.loading.transformers_folder import can_choose_sdpa

_SMALL = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1}


def test_the_seed_decides_the_weights_and_nothing_else_does():
    first = load_model(bert_source(seed=7)).module.state_dict()
    torch.manual_seed(123)
    again = load_model(bert_source(seed=7)).module.state_dict()
    other = load_model(bert_source(seed=8)).module.state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_the_global_random_state_is_left_as_it_was():
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    load_model(bert_source())
    assert torch.equal(torch.rand(3), expected)


def test_facts_come_from_the_configuration():
    facts = load_model(bert_source()).facts
    assert (facts.vocabulary, facts.pad_token, facts.max_positions) == (100, 0, 64)


def test_positions_of_roberta_start_after_the_padding():
    source = bert_source(
        identifier="roberta", overrides={"pad_token_id": 1, "max_position_embeddings": 66}
    )
    assert load_model(source).facts.max_positions == 64


def test_task_dtype_and_attention_are_followed():
    loaded = load_model(bert_source(task="text-classification", dtype="float16", attention="eager"))
    assert type(loaded.module).__name__ == "BertForSequenceClassification"
    assert next(loaded.module.parameters()).dtype is torch.float16
    assert loaded.config._attn_implementation == "eager"


@pytest.mark.parametrize(
    ("identifier", "sizes", "expected"),
    [
        ("bert", _SMALL, True),
        ("opt", _SMALL | {"ffn_dim": 16, "word_embed_proj_dim": 8}, True),
        ("bloom", {"hidden_size": 8, "n_layer": 1, "n_head": 2}, False),
        ("deberta-v2", _SMALL, False),
        ("xlnet", {"d_model": 8, "n_layer": 1, "n_head": 2, "d_inner": 16}, False),
    ],
)
def test_sdpa_can_be_chosen_exactly_if_transformers_loads_the_model_with_it(
    identifier: str, sizes: dict, expected: bool
):
    eager = Source(
        "config", identifier=identifier, overrides={"vocab_size": 32} | sizes, attention="eager"
    )
    assert can_choose_sdpa(eager, load_model(eager).module) is expected
    sdpa = dataclasses.replace(eager, attention="sdpa")
    if expected:
        module = load_model(sdpa).module
        assert not can_choose_sdpa(sdpa, module), "it is sdpa already"
    else:
        with pytest.raises(StageFailedError, match="scaled_dot_product_attention"):
            load_model(sdpa)


def test_a_recipe_cannot_choose_the_attention_of_a_factory():
    eager = bert_source(attention="eager")
    factory = dataclasses.replace(eager, kind="factory")
    assert not can_choose_sdpa(factory, load_model(eager).module)


def test_stored_means_float32_where_there_is_no_checkpoint():
    assert next(load_model(bert_source(dtype="stored")).module.parameters()).dtype is torch.float32


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"identifier": "bart_"},
            r"model\.config\.architecture.*'bart_'; perhaps you meant 'bart'",
        ),
        (
            {"overrides": {"num_hiden_layers": 1}},
            r"overrides\.num_hiden_layers.*perhaps you meant 'num_hidden_layers'",
        ),
        (
            {"task": "text-clasification"},
            r"model\.task.*perhaps you meant 'text-classification'.*Known: ",
        ),
        (
            {"task": "image-classification"},
            r"model\.config: transformers could not build bert.*image-classification",
        ),
        ({"overrides": {"hidden_size": 33}}, r"model\.config: .*33"),
    ],
)
def test_errors_name_the_key_and_the_fix(changes, message):
    with pytest.raises(StageFailedError, match=message):
        load_model(bert_source(**changes))


def test_an_architecture_of_several_classes_is_built():
    """transformers asks the configuration which one, and fails if it names none."""
    sizes = {"d_model": 8, "n_head": 1, "d_head": 8, "d_inner": 8, "block_sizes": [1, 1]}
    source = Source(kind="config", identifier="funnel", overrides=sizes, seed=1)
    assert type(load_model(source).module).__name__ == "FunnelModel"
