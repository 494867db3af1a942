import dataclasses
from typing import NamedTuple

import pytest
import torch
from tiny_models import tensor
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache, EncoderDecoderCache
from transformers.cache_utils import Cache

from convkit.protocol.contract import Contract
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.forward_signature import signature_findings
from convkit.worker.original.input_structure import Arguments
from convkit.worker.original.loading import LoadedModel

ONE = torch.ones(1)


@dataclasses.dataclass
class State:
    hidden: torch.Tensor
    cells: list[torch.Tensor]


class Pair(NamedTuple):
    first: torch.Tensor
    second: torch.Tensor


class Structured(torch.nn.Module):
    def forward(self, x, state: State | None = None, pair: Pair = None, nested=None, named=None):
        return {"x": x}


def arguments(module, *keys):
    return Arguments(module, [tensor(f"flat_{i}", 1, origin=key) for i, key in enumerate(keys)])


def inputs_of(module, *keys):
    return arguments(module, *keys).build([torch.full((1,), float(i)) for i in range(len(keys))])


def test_a_dataclass_with_a_list_inside():
    built = inputs_of(Structured(), "x", "state.cells.1", "state.hidden", "state.cells.0")
    assert isinstance(built["state"], State)
    assert built["state"].hidden == 2
    assert isinstance(built["state"].cells, list)
    assert [float(cell) for cell in built["state"].cells] == [3, 1]


def test_named_tuples_nested_tuples_and_dicts():
    built = inputs_of(Structured(), "pair.second", "pair.first", "nested.0.0", "named.a.b")
    assert built["pair"] == Pair(torch.ones(1), torch.zeros(1))
    assert built["nested"] == ((torch.full((1,), 2.0),),)
    assert built["named"] == {"a": {"b": torch.full((1,), 3.0)}}


class Decoder(torch.nn.Module):
    def forward(self, x, past: Cache | None = None):
        return {"x": x, "past": past}


def test_a_cache_by_its_annotation_and_the_same_names_for_its_outputs():
    keys = [f"past.{layer}.{part}" for layer in (0, 1) for part in ("key", "value")]
    specs = (tensor("x", 1), *(tensor(f"in.{key}", 1, 1, 1, 1, origin=key) for key in keys))
    outputs = tuple(tensor(f"out.{key}", 1, 1, 1, 1, origin=key) for key in keys)
    module = ContractModule(LoadedModel(Decoder(), "decoder"), Contract(specs, outputs, ()))
    feeds = [torch.full((1, 1, 1, 1), float(i)) for i in range(4)]
    assert [float(y) for y in module(ONE, *feeds)] == [0, 1, 2, 3]
    built = module.arguments.build([ONE, *feeds])
    assert isinstance(built["past"], DynamicCache)


def test_an_encoder_decoder_cache():
    names = ("self_attention_cache", "cross_attention_cache")
    keys = [f"past.{name}.0.{part}" for name in names for part in ("key", "value")]
    specs = tuple(tensor(f"i{i}", 1, 1, 1, 1, origin=key) for i, key in enumerate(keys))
    outputs = tuple(tensor(f"o{i}", 1, 1, 1, 1, origin=key) for i, key in enumerate(keys))
    contract = Contract((tensor("x", 1), *specs), outputs, ())
    module = ContractModule(LoadedModel(Decoder(), "decoder"), contract)
    feeds = [torch.full((1, 1, 1, 1), float(i)) for i in range(4)]
    assert [float(y) for y in module(ONE, *feeds)] == [0, 1, 2, 3]
    assert isinstance(module.arguments.build([ONE, *feeds])["past"], EncoderDecoderCache)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("state.hiden",), r"state is a State.* no field 'hiden'; its fields: hidden, cells"),
        (("nested.0", "nested.2"), r"no input fills nested.1, but nested.2 is filled"),
        (("nested", "nested.0"), r"'flat_1' fills 'nested.0', and another input"),
        (("nested.0", "nested"), r"'flat_1' fills 'nested', and another input"),
        (("state.cells.a",), r"state.cells is a list, whose parts are numbered"),
    ],
)
def test_what_cannot_fit_is_named(keys, message):
    with pytest.raises(StageFailedError, match=message):
        arguments(Structured(), *keys)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("past.0.key",), r"has a key and a value .*; found past.0.key"),
        (("past.1.key", "past.1.value"), r"no input fills past.0"),
        (("past.self_attention_cache.0.key",), r"no input fills past.cross_attention_cache|value"),
    ],
)
def test_what_no_cache_has_is_named(keys, message):
    with pytest.raises(StageFailedError, match=message):
        arguments(Decoder(), *keys)


@pytest.fixture(scope="module")
def qwen3() -> torch.nn.Module:
    config = AutoConfig.for_model(
        "qwen3",
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        intermediate_size=32,
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config).eval()


def cached(layers: int) -> Contract:
    keys = [f"past_key_values.{i}.{part}" for i in range(layers) for part in ("key", "value")]
    past = [tensor(f"past.{key}", 1, 1, "past", 8, origin=key) for key in keys]
    present = [tensor(f"present.{key}", 1, 1, "past + 1", 8, origin=key) for key in keys]
    ids = tensor("input_ids", 1, 1, dtype="int64")
    return Contract((ids, *past), (tensor("logits", 1, 1, 50), *present), ())


@pytest.mark.parametrize("past", [0, 3])
def test_a_real_decoder_continues_from_the_cache_it_is_fed(qwen3, past):
    loaded = LoadedModel(qwen3, "qwen3")
    assert signature_findings(loaded, cached(2)) == []
    ids = torch.arange(past + 1)[None]
    with torch.no_grad():
        whole = qwen3(input_ids=ids, use_cache=True)
        cache = [(layer.keys, layer.values) for layer in whole.past_key_values.layers]
        feeds = [each[:, :, :past] for layer in cache for each in layer]
        logits, *present = ContractModule(loaded, cached(2))(ids[:, past:], *feeds)
    torch.testing.assert_close(logits[:, 0], whole.logits[:, past])
    for found, expected in zip(present, [each for layer in cache for each in layer], strict=True):
        torch.testing.assert_close(found, expected)


def test_a_cache_of_too_few_layers_is_named(qwen3):
    module = ContractModule(LoadedModel(qwen3, "qwen3"), cached(1))
    feeds = [torch.zeros(1, 1, 0, 8)] * 2
    with pytest.raises(StageFailedError, match="cache has 2 layers; the recipe's inputs fill 1"):
        module(torch.zeros(1, 1, dtype=torch.int64), *feeds)


def test_the_order_of_structured_inputs_is_that_of_their_parameter():
    specs = (tensor("s", 1, origin="state.hidden"), tensor("x", 1))
    contract = Contract(specs, (tensor("x", 1),), ())
    (finding,) = signature_findings(LoadedModel(Structured(), "structured"), contract)
    assert finding.code == "C103"
    assert finding.remedy is not None
    assert finding.remedy.change == {"inputs": [{"name": "x"}, {"name": "s"}]}
