"""Task metrics of language models, whole: what a decoder writes, how well it predicts, and which
texts an encoder finds. Random weights: the original's own results are the labels.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from word_tokenizers import word_tokenizer

from convkit.host.home import Home
from convkit.host.record.run_record import RunRecord
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions

ROWS = ["a b c d", "g", *(f"{one} {other}" for one in "abcdefgh" for other in "acfg")]
AXES = {
    "batch": {"min": 1, "typical": 2, "max": 4},
    "sequence": {"min": 1, "typical": 8, "max": 16},
}


def tokens(name: str, sample: Any) -> dict[str, Any]:
    return {"name": name, "dtype": "int64", "shape": ["batch", "sequence"], "sample": sample}


def tokenizer() -> Any:
    """Return the tokenizer of eight words, whose last one ends a text."""
    words = word_tokenizer()
    words.eos_token = "h"
    return words


def save(folder: Path, kind: str) -> Any:
    import torch
    import transformers

    torch.manual_seed(3)
    words = tokenizer()
    sizes = {"vocab_size": len(words), "hidden_size": 32, "num_hidden_layers": 2}
    sizes |= {"num_attention_heads": 2, "intermediate_size": 64, "max_position_embeddings": 64}
    if kind == "decoder":
        config = transformers.LlamaConfig(**sizes, num_key_value_heads=2, use_cache=False)
        model = transformers.LlamaForCausalLM(config)
        with torch.no_grad():  # peaked scores, so that rounding decides nothing
            model.lm_head.weight.mul_(20)
    else:
        model = transformers.BertModel(transformers.BertConfig(**sizes), add_pooling_layer=False)
    model.eval().save_pretrained(folder)
    words.save_pretrained(folder)
    return model


def continuation(model: Any, words: Any, prompt: str, count: int) -> str:
    """Return what transformers itself writes after a prompt."""
    given = words(prompt, return_tensors="pt")
    made = model.generate(
        input_ids=given["input_ids"], attention_mask=given["attention_mask"],
        eos_token_id=words.eos_token_id,
        max_new_tokens=count, do_sample=False, pad_token_id=0, use_cache=False,
    )  # fmt: skip
    return str(words.decode(made[0, given["input_ids"].shape[1] :], skip_special_tokens=True))


def run(folder: Path, task: str, output: dict[str, Any], inputs: list[Any], evaluate: Any,
        targets: dict[str, Any]) -> RunRecord:  # fmt: skip
    recipe = {
        "schema": 1,
        "name": "language",
        "model": {"path": "model", "task": task},
        "tools": {"python": f"{sys.version_info.major}.{sys.version_info.minor}"},
        "axes": AXES,
        "inputs": inputs,
        "outputs": [output],
        "verify": {"ladder": "quick"},
        "evaluate": evaluate,
        "targets": targets,
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    options = RunOptions(path, Home(folder / "home"), toolchain="host", track=False)
    return run_recipe(options).record


def verified(record: RunRecord, target: str) -> Any:
    (found,) = [each for each in record.targets if each.name == target]
    return found.verifications[0]


@pytest.mark.thorough
def test_what_a_decoder_writes_and_how_well_it_predicts(tmp_path: Path) -> None:
    import transformers

    model = save(tmp_path / "model", "decoder")
    words = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    rows = [{"prompt": each, "text": continuation(model, words, each, 6)} for each in ROWS]
    rows = [row for row in rows if row["text"]]
    assert len({row["text"] for row in rows}) > 9
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    output = {"name": "logits", "dtype": "float32", "shape": ["batch", "sequence", 11]}
    inputs = [tokens("input_ids", "token_ids"), tokens("attention_mask", "padding_mask")]
    coarse = {"runtime": "onnxruntime", "precision": {"quantize": "int4-weights"}}
    asked = {"data": "rows.jsonl", "texts": ["prompt"], "labels": "text", "metric": "wer"}
    asked |= {"generate": 6, "max_rise": 0.02}
    targets = {"ort": {"runtime": "onnxruntime"}, "int4": coarse}
    record = run(tmp_path, "text-generation", output, inputs, asked, targets)
    scored = verified(record, "ort").evaluation
    assert (scored.original, scored.candidate, scored.rows) == (0.0, 0.0, len(rows))
    worse = verified(record, "int4")
    assert worse.evaluation.candidate > 0.02
    assert [each.code for each in worse.findings if each.severity == "error"] == ["N701"]

    asked = {"data": "rows.jsonl", "texts": ["prompt"], "metric": "perplexity", "max_rise": 0.02}
    record = run(tmp_path, "text-generation", output, inputs, asked, targets)
    scored = verified(record, "ort").evaluation
    assert scored.candidate == pytest.approx(scored.original, rel=1e-4)
    assert scored.original == pytest.approx(
        perplexity(model, [row["prompt"] for row in rows]), rel=1e-4
    )
    assert abs(verified(record, "int4").evaluation.drop) > 0.001


def perplexity(model: Any, texts: list[str]) -> float:
    import torch

    words, losses, count = tokenizer(), 0.0, 0
    for each in texts:
        ids = words(each, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            scores = model(input_ids=ids).logits[0, :-1].double().log_softmax(-1)
        losses -= float(scores.gather(1, ids[0, 1:, None]).sum())
        count += ids.shape[1] - 1
    return float(torch.tensor(losses / count).exp())


@pytest.mark.thorough
def test_texts_that_an_encoder_finds(tmp_path: Path) -> None:
    save(tmp_path / "model", "encoder")
    rows = [{"query": each, "document": f"{each} {each}"} for each in ROWS]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    output = {"name": "last_hidden_state", "dtype": "float32", "shape": ["batch", "sequence", 32]}
    inputs = [tokens("input_ids", "token_ids"), tokens("attention_mask", "padding_mask")]
    asked = {"data": "rows.jsonl", "texts": ["query", "document"], "metric": "recall@2"}
    asked |= {"max_drop": 0.05}
    targets = {"ort": {"runtime": "onnxruntime"}}
    record = run(tmp_path, "feature-extraction", output, inputs, asked, targets)
    scored = verified(record, "ort").evaluation
    assert (scored.drop, scored.disagreed, record.targets[0].status) == (0.0, 0, "verified")
    assert 0.3 < scored.original <= 1.0
