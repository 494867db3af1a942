"""Packages for onnxruntime-genai, by its own wheel on the CPU: sound ones, and planted faults."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from packaged_decoder import CONTRACT, STEPS, headed_decoder
from small_decoder import DECODER_SAMPLES
from small_graphs import save
from stage_requests import build_request, verify_request

from convkit.protocol.json_codec import encode
from convkit.protocol.messages import Feed, ReferenceRequest, Source
from convkit.runtimes.onnxruntime import build, verify
from convkit.runtimes.onnxruntime.genai_check import generate, verify_package
from convkit.runtimes.onnxruntime.genai_layout import cache_layout, unknown_inputs
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.worker.job_context import Context
from convkit.worker.original.generation_facts import Generation
from convkit.worker.reference.original_model import OnnxOriginal
from convkit.worker.stages import reference
from convkit.worker.steps.greedy_choice import compare_tokens
from convkit.worker.steps.reference_greedy import read_generation

OPTIONS = OnnxRuntimeOptions(package="genai")
FACTS = Generation(ends=(12,), begins=1, pads=0, hidden=4, heads=1, positions=64)


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Return the reference of the decoder, whose special tokens are FACTS."""
    folder = tmp_path_factory.mktemp("original")
    file = save(folder / "file", headed_decoder(), carries=CONTRACT)
    source = Source("onnx", path=str(file))
    request = ReferenceRequest(
        source, CONTRACT, DECODER_SAMPLES, 0, (), None, ("masked-row",), steps=STEPS,
        ladder="smoke",
    )  # fmt: skip
    output = folder / "reference"
    output.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnnxOriginal, "generation", FACTS)  # a file has no configuration
        reference.run(request, Context(output))
    (output / "tokenizer").mkdir()
    (output / "tokenizer" / "tokenizer.json").write_text("{}")
    return output


@pytest.fixture(scope="module")
def packaged(original, tmp_path_factory):
    folder = tmp_path_factory.mktemp("packaged")
    exported = save(folder / "exported", headed_decoder(), carries=CONTRACT)
    built = folder / "built"
    built.mkdir()
    request = build_request(
        exported.parent, contract=CONTRACT, options=OPTIONS, reference=str(original), steps=STEPS
    )
    _, findings = build.run(request, Context(built))
    assert findings == []
    return built


def config_of(folder: Path) -> dict:
    return json.loads((folder / "genai_config.json").read_text())


def edited(packaged: Path, folder: Path, place: str, value: object) -> Path:
    """Return a copy of the package with one value changed; None removes it."""
    copy = folder / "copy"
    shutil.copytree(packaged, copy)
    config = inner = config_of(copy)
    *path, key = place.split(".")
    for each in path:
        inner = inner[each]
    inner[key] = value
    (copy / "genai_config.json").write_text(json.dumps(config))
    return copy


def verified(built, original):
    request = verify_request(built, original, contract=CONTRACT, options=OPTIONS, steps=STEPS)
    rows, findings = verify_package(request, Context(built))
    return rows, {each.code: each for each in findings}


def test_prompts_have_no_token_that_pads_or_ends(original):
    """genai masks padding by its token, also in the middle of a sequence."""
    prompt = read_generation(original, CONTRACT, STEPS).inputs[0]["ids"]
    assert prompt.shape == (2, 5)
    assert not np.isin(prompt, [0, 12]).any()


class TestASoundPackage:
    def test_its_configuration_states_what_contract_and_original_say(self, packaged):
        model = config_of(packaged)["model"]
        decoder = model["decoder"]
        assert (decoder["num_hidden_layers"], decoder["num_key_value_heads"]) == (2, 1)
        assert (decoder["head_size"], model["vocab_size"]) == (4, 13)
        assert (model["eos_token_id"], model["pad_token_id"], model["bos_token_id"]) == ([12], 0, 1)
        assert model["context_length"] == 41  # a full cache and one token
        assert decoder["inputs"] == {
            "input_ids": "ids",
            "attention_mask": "mask",
            "position_ids": "positions",
            "past_key_names": "past_%d_key",
            "past_value_names": "past_%d_value",
        }
        assert (packaged / "tokenizer.json").is_file()

    @pytest.mark.thorough
    def test_genai_generates_the_originals_tokens(self, packaged, original):
        request = verify_request(
            packaged, original, contract=CONTRACT, options=OPTIONS, steps=STEPS
        )
        result, findings = verify.run(request, Context(packaged))
        assert not {each.code for each in findings} & {"E310", "E311", "N620"}
        stored = read_generation(original, CONTRACT, STEPS)
        assert stored.scores.shape == (24, 2, 13)
        assert [row.margin for row in result.packaged] == [None, None]
        assert all(1 <= row.agreed == row.generated <= 24 for row in result.packaged)

    def test_what_the_user_sets_for_the_search_is_no_contradiction(
        self, packaged, original, tmp_path
    ):
        copy = edited(packaged, tmp_path, "search.temperature", 0.7)
        assert "E310" not in verified(copy, original)[1]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("model.decoder.num_key_value_heads", 4),
        ("model.decoder.head_size", 8),
        ("model.decoder.num_hidden_layers", 1),
        ("model.decoder.inputs.past_key_names", "past_%d_value"),
        ("model.decoder.outputs.present_value_names", "present_%d_key"),
        ("model.eos_token_id", [11]),
        ("model.eos_token_id", None),
        ("model.vocab_size", 12),
    ],
)
def test_a_value_that_contradicts_the_model_is_named(packaged, original, tmp_path, place, value):
    _, findings = verified(edited(packaged, tmp_path, place, value), original)
    finding = findings["E310"]
    assert finding.place.tensor == place
    assert finding.evidence["found"] == value


def test_a_configuration_that_is_gone_or_no_json_is_named(packaged, original, tmp_path):
    copy = edited(packaged, tmp_path, "search.top_p", 1.0)
    (copy / "genai_config.json").write_text("{")
    finding = verified(copy, original)[1]["E310"]
    assert finding.is_error
    assert "cannot be read" in finding.message


class TestGenerationThatDiffers:
    def test_exchanged_caches_give_other_tokens_than_the_model(self, packaged, original, tmp_path):
        """What E310 prevents: genai itself accepts the names."""
        inputs = config_of(packaged)["model"]["decoder"]["inputs"]
        wrong = inputs | {"past_key_names": "past_%d_value", "past_value_names": "past_%d_key"}
        copy = edited(packaged, tmp_path, "model.decoder.inputs", wrong)
        stored = read_generation(original, CONTRACT, STEPS)
        rows = [
            compare_tokens(stored.scores, generate(each, stored.inputs[0], STEPS, 24), ())
            for each in (packaged, copy)
        ]
        assert all(row.margin is None for row in rows[0])
        assert any(row.margin is not None and row.margin > 1e-3 for row in rows[1])

    def test_a_model_unlike_the_configuration_s_positions_is_n620(
        self, packaged, original, monkeypatch
    ):
        """Planted in the tokens that genai returns: its own feeding cannot be changed here."""
        right = generate(packaged, read_generation(original, CONTRACT, STEPS).inputs[0], STEPS, 24)
        monkeypatch.setattr(
            "convkit.runtimes.onnxruntime.genai_check.generate", lambda *_: (right + 1) % 12
        )
        finding = verified(packaged, original)[1]["N620"]
        assert finding.evidence["agreed"] == 0

    def test_what_genai_does_not_run_is_e311(self, packaged, original, tmp_path):
        copy = tmp_path / "copy"
        shutil.copytree(packaged, copy)
        settings = config_of(copy)
        settings["search"] = {"no_such_option": 1}
        (copy / "genai_config.json").write_text(json.dumps(settings))
        finding = verified(copy, original)[1]["E311"]
        assert finding.is_error
        assert "no_such_option" in finding.message


def feeds(*names: str) -> list[Feed]:
    return [
        Feed(f"present.{name}", f"past.{name}", int(name[0]) if name[0].isdigit() else None, part)
        for name in names
        for part in [name.lstrip("0123456789.")]
    ]


@pytest.mark.parametrize(
    ("names", "shape", "why"),
    [
        (("0.key", "1.key"), ("b", 2, "p", 4), "a cache of keys and one of values"),
        (("0.key", "0.value", "0.conv"), ("b", 2, "p", 4), "carries 'conv', 'key', 'value'"),
        (("1.key", "1.value"), ("b", 2, "p", 4), "numbered by layer from 0"),
        (("0.key", "1.key", "0.value"), ("b", 2, "p", 4), "names differ in the layer's number"),
        (("0.key", "0.value"), ("b", "p", 4), "of one shape, [rows, heads, past, size]"),
        (("0.key", "0.value"), ("b", "h", "p", 4), "a fixed number of heads"),
    ],
)
def test_caches_that_genai_cannot_hold_are_told(names, shape, why):
    carried = feeds(*names)
    found = cache_layout(carried, {feed.input: shape for feed in carried})
    assert isinstance(found, str)
    assert why in found


def test_a_layer_number_is_found_among_other_numbers():
    carried = [Feed(f"out2.{n}.k_cache", f"in2.{n}.k_cache", n, ".k_cache") for n in (0, 1, 2)] + [
        Feed(f"out2.{n}.v_cache", f"in2.{n}.v_cache", n, ".v_cache") for n in (0, 1, 2)
    ]
    found = cache_layout(carried, {feed.input: ("b", 2, "p", 4) for feed in carried})
    assert not isinstance(found, str)
    assert (found.past_keys, found.present_values) == ("in2.%d.k_cache", "out2.%d.v_cache")
    assert unknown_inputs(["ids", "types"], ["ids", None]) is not None
    assert unknown_inputs(["ids"], ["ids", None]) is None


def test_an_original_without_an_end_is_told(original, tmp_path):
    copy = tmp_path / "reference"
    shutil.copytree(original, copy)
    endless = dataclasses.replace(FACTS, ends=())
    (copy / "generation.json").write_text(json.dumps(encode(endless)))
    exported = save(tmp_path / "exported", headed_decoder(), carries=CONTRACT)
    (tmp_path / "built").mkdir()
    request = build_request(
        exported.parent, contract=CONTRACT, options=OPTIONS, reference=str(copy), steps=STEPS
    )
    _, findings = build.run(request, Context(tmp_path / "built"))
    assert [each.code for each in findings] == ["E312"]
    assert "eos_token_id" not in config_of(tmp_path / "built")["model"]
