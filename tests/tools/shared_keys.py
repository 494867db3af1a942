"""Keys that the recipes of many tests share."""

import sys
from typing import Any

from tiny_models import BERT_OVERRIDES

# Of the running Python, whose host toolchain the tests use.
TOOLS = {"python": f"{sys.version_info.major}.{sys.version_info.minor}"}
# A module that the file beside the recipe builds.
FACTORY: dict[str, Any] = {
    "schema": 1,
    "name": "small",
    "model": {"factory": {"call": "model.py:build", "seed": 3}},
    "tools": TOOLS,
    "export": {"exporter": "torchscript", "opset": 17},  # a tenth of the time of a dynamo export
    "axes": {"batch": {"min": 1, "typical": 3, "max": 5}},
    "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", 3]}],
    "verify": {"tolerance": {"max_abs": 1e-5}},
    "targets": {"ort": {"runtime": "onnxruntime"}},
}


def tokens(name: str, sample: str | dict[str, list[int]]) -> dict[str, Any]:
    """Return an input [batch, sequence] of integers."""
    return {"name": name, "dtype": "int64", "shape": ["batch", "sequence"], "sample": sample}


def bert_inputs() -> list[dict[str, Any]]:
    return [
        tokens("input_ids", "token_ids"),
        tokens("attention_mask", "padding_mask"),
        tokens("token_type_ids", {"integers": [0, 2]}),
    ]


def bert(seed: int, **overrides: int) -> dict[str, Any]:
    """Return the keys of a BERT of two layers, drawn from a seed, that say what it is."""
    config = {"architecture": "bert", "seed": seed, "overrides": BERT_OVERRIDES | overrides}
    return {
        "model": {"config": config, "attn_implementation": "eager"},
        "export": {"exporter": "torch", "opset": 18},
        "axes": {
            "batch": {"min": 1, "typical": 2, "max": 4},
            "sequence": {"min": 2, "typical": 8, "max": 16},
        },
        "inputs": bert_inputs(),
        "outputs": [
            {"name": "last_hidden_state", "dtype": "float32", "shape": ["batch", "sequence", 32]}
        ],
    }
