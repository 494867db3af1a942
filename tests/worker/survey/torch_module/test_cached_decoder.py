"""Decoders of which nothing is listed: their caches are seen by calling them."""

import dataclasses
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import DynamicCache

from convkit.protocol.contract import TensorSpec
from convkit.protocol.messages import Sample, Source, SurveyModelRequest, SurveyResult
from convkit.worker.cases.values.sampling_facts import ModelFacts
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.original.loading import LoadedModel
from convkit.worker.stages.survey_model import run
from convkit.worker.survey.sizes.first_working_sizes import Start
from convkit.worker.survey.torch_module.cached_decoder import NotCachedError, survey_cached
from convkit.worker.survey.torch_module.shrunk_decoder import narrow_decoder

WORDS, WIDTH = 11, 4


def surveyed(architecture: str, folder) -> SurveyResult:
    source = Source("config", identifier=architecture, task="text-generation")
    result, findings = run(SurveyModelRequest(source, 60.0, small=True), Context(folder))
    assert findings == []
    return result


# Each calls its sizes by other names, or takes its inputs in another order; the last three have
# windows, experts, and one key for all heads.
ARCHITECTURES = {
    "opt": ("input_ids", "attention_mask", "past", "position_ids"),
    "bloom": ("input_ids", "past", "attention_mask"),
    "xglm": ("input_ids", "attention_mask", "position_ids", "past"),
    "gemma2": ("input_ids", "attention_mask", "position_ids", "past"),
    "mixtral": ("input_ids", "attention_mask", "position_ids", "past"),
    "gpt_bigcode": ("input_ids", "past", "attention_mask", "position_ids"),
}
_MORE = ("xglm", "mixtral", "gpt_bigcode", "bloom")  # further samples of what the others show
HEADS = {"gpt_bigcode": 1, "gemma2": 2, "mixtral": 2}


@pytest.mark.slow
@pytest.mark.parametrize(
    "architecture",
    [pytest.param(a, marks=pytest.mark.thorough) if a in _MORE else a for a in ARCHITECTURES],
)
@pytest.mark.thorough
def test_an_unlisted_decoder_has_its_cache(architecture, tmp_path):
    found = surveyed(architecture, tmp_path)
    assert found.loops
    assert found.notes == ()
    contract = found.contract
    groups = [spec.name.partition(".")[0] for spec in contract.inputs]
    assert tuple(dict.fromkeys(groups)) == ARCHITECTURES[architecture]
    shapes = {spec.name: spec.shape for spec in (*contract.inputs, *contract.outputs)}
    assert shapes["attention_mask"] == ("batch", "past + sequence")
    heads = HEADS.get(architecture, 4)
    assert shapes["past.1.value"] == ("batch", heads, "past", 16)
    assert shapes["present.1.value"] == ("batch", heads, "past + sequence", 16)
    assert [(axis.name, axis.min) for axis in contract.axes] == [
        ("batch", 1),
        ("sequence", 1),
        ("past", 0),
    ]
    origins = {spec.origin for spec in contract.outputs}
    assert {"past_key_values.0.key", "past_key_values.1.value"} <= origins


@pytest.mark.slow
def test_a_decoder_is_narrow_even_if_its_layers_are_listed_twice():
    overrides = narrow_decoder("gpt_neo")  # attention_types lists every layer, too
    assert overrides is not None
    assert overrides["hidden_size"] == 64
    assert "num_layers" not in overrides


@pytest.mark.slow
@pytest.mark.thorough
def test_groups_of_heads_are_as_many_as_heads_where_an_architecture_needs_that():
    overrides = narrow_decoder("deepseek_v3")
    assert overrides is not None
    assert overrides["num_key_value_heads"] == overrides["num_attention_heads"] == 4
    assert "head_dim" not in overrides


def test_a_decoder_without_a_small_configuration_is_not_loaded_at_its_full_size(tmp_path):
    with pytest.raises(StageFailedError, match="found no small configuration of dbrx"):
        surveyed("dbrx", tmp_path)


@pytest.mark.thorough
def test_what_is_no_decoder_has_no_narrow_configuration():
    assert narrow_decoder("vit") is None
    assert narrow_decoder("not-an-architecture") is None


@dataclasses.dataclass
class Scored:
    """What a decoder returns."""

    logits: torch.Tensor
    past_key_values: Any
    state: Any = None


class Decoder(torch.nn.Module):
    """One layer that averages what it has seen; `fault` makes its cache something else."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        torch.manual_seed(0)
        self.table = torch.nn.Embedding(WORDS, WIDTH)
        self.head = torch.nn.Linear(WIDTH, WORDS)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        past_key_values: DynamicCache | None = None,
        use_cache: bool = True,
    ) -> Scored:
        new = self.table(input_ids)[:, None]
        cache = DynamicCache() if past_key_values is None else past_key_values
        begin = cache.get_seq_length()
        seen, _ = cache.update(new, new, 0)
        read = new if self.fault == "forgets" else seen
        count = torch.arange(1, read.shape[2] + 1)[:, None]
        means = (read.cumsum(2) / count)[:, 0, -new.shape[2] :]
        scores = self.head(means)
        match self.fault:
            case "keeps nothing":
                return Scored(scores, None)
            case "keeps a state elsewhere":
                return Scored(scores, None, [new])
            case "keeps a state":
                return Scored(scores, SimpleNamespace(layers=[SimpleNamespace(state=new)]))
            case "keeps a sum":
                cache = DynamicCache()
                cache.update(means[:, None, -1:], means[:, None, -1:], 0)
            case "scores the last token":
                scores = scores[:, -1]
            case "ends":
                assert seen.shape[2] <= 20, "no more positions"
            case "refuses":
                assert not begin, "no caches here"
            case "overflows" if begin:
                scores = scores * torch.inf * 0
        return Scored(scores, cache)


def loaded(fault: str) -> LoadedModel:
    facts = ModelFacts(vocabulary=WORDS, pad_token=None, max_positions=None)
    return LoadedModel(Decoder(fault).eval(), "own", facts=facts)


IDS = TensorSpec("input_ids", "int64", ("batch", "sequence"))
MASK = TensorSpec("attention_mask", "int64", ("batch", "sequence"))
START = Start(
    (IDS, MASK), {}, {"input_ids": Sample("token_ids"), "attention_mask": Sample("padding_mask")}
)


def test_a_cache_is_described_by_what_two_calls_keep():
    found = survey_cached(loaded(""), START)
    assert [spec.name for spec in found.contract.inputs] == [
        "input_ids",
        "attention_mask",
        "past.0.key",
        "past.0.value",
    ]
    assert found.contract.outputs[0].shape == ("batch", "sequence", WORDS)
    assert found.contract.inputs[2].shape == ("batch", 1, "past", WIDTH)
    assert found.magnitudes["logits"] > 0


def test_the_longest_past_is_what_the_model_has_positions_for():
    axes = {axis.name: axis for axis in survey_cached(loaded("ends"), START).contract.axes}
    assert axes["past"].max + axes["sequence"].max == 20
    assert axes["past"].min == 0


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("keeps nothing", "the model returns none"),
        ("keeps a state elsewhere", "the model keeps a state in state, not a key and a value"),
        ("keeps a state", "which has no key"),
        ("keeps a sum", "does not grow"),
        ("scores the last token", "no logits for every token"),
        ("forgets", "differ from those of one call"),
        ("refuses", "no caches here"),
        ("overflows", "NaN"),
    ],
)
def test_why_a_cache_is_left_out(fault, says):
    with pytest.raises(NotCachedError, match=says):
        survey_cached(loaded(fault), START)


def test_more_than_tokens_is_not_called_in_a_loop():
    picture = TensorSpec("pixel_values", "float32", ("batch", 3, 8, 8))
    with pytest.raises(NotCachedError, match="more than tokens"):
        survey_cached(loaded(""), dataclasses.replace(START, inputs=(IDS, picture)))
