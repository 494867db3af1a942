"""A small recipe for tests of verdicts and plans."""

from typing import Any

from shared_keys import tokens

from convkit.host.recipe.keys.recipe import Recipe


def recipe(**changes: Any) -> Recipe:
    values: dict[str, Any] = {
        "schema": 1,
        "name": "small",
        "model": {"config": {"architecture": "bert"}},
        "axes": {
            "batch": {"min": 1, "typical": 2, "max": 4},
            "sequence": {"min": 2, "typical": 8, "max": 16},
        },
        "inputs": [
            tokens("ids", "token_ids"),
            tokens("mask", "padding_mask"),
            tokens("types", {"integers": [0, 2]}),
        ],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", "sequence", 4]}],
        "verify": {"tolerance": {"max_abs": 1e-4}},
        "targets": {"ort": {"runtime": "onnxruntime"}},
    }
    return Recipe.model_validate(values | changes)
