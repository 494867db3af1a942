"""A small recipe for tests of verdicts and plans."""

from typing import Any

from convkit.recipe.models import Recipe


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
            {
                "name": "ids",
                "dtype": "int64",
                "shape": ["batch", "sequence"],
                "sample": "token_ids",
            },
            {
                "name": "mask",
                "dtype": "int64",
                "shape": ["batch", "sequence"],
                "sample": "padding_mask",
            },
            {
                "name": "types",
                "dtype": "int64",
                "shape": ["batch", "sequence"],
                "sample": {"integers": [0, 2]},
            },
        ],
        "outputs": [{"name": "y", "dtype": "float32", "shape": ["batch", "sequence", 4]}],
        "verify": {"tolerance": {"max_abs": 1e-4}},
        "targets": {"ort": {"runtime": "onnxruntime"}},
    }
    return Recipe.model_validate(values | changes)
