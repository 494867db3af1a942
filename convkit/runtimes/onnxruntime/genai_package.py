"""Writes the folder that onnxruntime-genai loads: genai_config.json and the tokenizer, beside
model.onnx.

The keys are those of genai's own builder (onnxruntime_genai.models.builder) and of the reference of
genai_config.json. The type `decoder` is genai's for any graph with these inputs, so that a model
need not be one that genai knows by name.
"""

import json
import shutil
from pathlib import Path

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import BuildRequest, OptionsT, Steps
from convkit.runtimes.onnxruntime.genai_layout import CacheLayout, cache_layout
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.generation_facts import Generation
from convkit.worker.steps.reference_greedy import read_generation

CONFIG_FILE = "genai_config.json"


def write_package(output: Path, model: str, request: BuildRequest[OptionsT]) -> list[Finding]:
    """Write genai_config.json and the tokenizer's files into `output`, which has the model's file.

    Findings: E312 if the original names no token that ends a sequence. Raises StageFailedError if
    there is no generation of the original, or genai cannot hold the model's caches.
    """
    assert request.steps is not None
    assert request.reference is not None
    stored = read_generation(Path(request.reference), request.contract, request.steps)
    config = genai_config(model, request.contract, request.steps, stored.facts)
    text = json.dumps(config, indent=2) + "\n"
    (output / CONFIG_FILE).write_text(text, encoding="utf-8")
    for file in stored.tokenizer:
        shutil.copyfile(file, output / file.name)
    return [] if stored.facts.ends else [_endless()]


def genai_config(
    model: str, contract: Contract, steps: Steps, facts: Generation
) -> dict[str, Json]:
    """Return genai_config.json for a model file; raises StageFailedError."""
    layout = _layout(contract, steps)
    length = _longest(contract, steps, facts)
    decoder: dict[str, Json] = {
        "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
        "filename": model,
        "head_size": layout.size,
        "hidden_size": facts.hidden,
        "inputs": {
            "input_ids": steps.tokens,
            "attention_mask": steps.mask,
            "position_ids": next(iter(steps.positions), None),
            "past_key_names": layout.past_keys,
            "past_value_names": layout.past_values,
        },
        "outputs": {
            "logits": steps.scores,
            "present_key_names": layout.present_keys,
            "present_value_names": layout.present_values,
        },
        "num_attention_heads": facts.heads,
        "num_hidden_layers": layout.layers,
        "num_key_value_heads": layout.heads,
    }
    (scores,) = (spec for spec in contract.outputs if spec.name == steps.scores)
    described: dict[str, Json] = {
        "bos_token_id": facts.begins,
        "context_length": length,
        "decoder": decoder,
        "eos_token_id": list(facts.ends) or None,
        "pad_token_id": facts.pads if facts.pads is not None else next(iter(facts.ends), None),
        "type": "decoder",
        "vocab_size": int(scores.shape[-1]),
    }
    search: dict[str, Json] = {
        "do_sample": False,
        "max_length": length,
        "min_length": 0,
        "num_beams": 1,
        # The graph returns caches that have grown; a shared buffer would need one of full length.
        "past_present_share_buffer": False,
        "repetition_penalty": 1.0,
        "temperature": 1.0,
        "top_k": 1,
        "top_p": 1.0,
    }
    return {"model": _stated(described), "search": search}


def _layout(contract: Contract, steps: Steps) -> CacheLayout:
    shapes = {spec.name: spec.shape for spec in (*contract.inputs, *contract.outputs)}
    found = cache_layout(steps.feeds, shapes)
    if isinstance(found, str):
        raise StageFailedError(f"package: genai {found}")  # the recipe's checks say the same
    return found


def _longest(contract: Contract, steps: Steps, facts: Generation) -> int:
    """Return the longest sequence, in tokens, that the caches and the model's positions allow: a
    full cache and one token.
    """
    room = min(contract.axis(axis).max for axis in steps.grows) + 1
    return room if facts.positions is None else min(room, facts.positions)


def _stated(values: dict[str, Json]) -> dict[str, Json]:
    """Return a mapping without what is not known, at any depth."""
    return {
        key: _stated(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }


def _endless() -> Finding:
    return Finding(
        "E312",
        "the original has no end-of-sequence token (eos_token_id), so the package generates"
        " until its longest sequence",
        Place(),
        {},
        Remedy("Set eos_token_id in the model's generation_config.json or config.json."),
    )
