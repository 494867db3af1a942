"""Recipes with OpenVINO targets through `convkit run`: real exports and IRs, the real plugin."""

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from convkit.execute.run import RunOptions, RunOutcome, run_recipe
from convkit.home import Home
from convkit.record.model import TargetReport

pytest.importorskip("openvino")

OV = {"runtime": "openvino"}
RECIPE: dict[str, Any] = {
    "schema": 1,
    "name": "ov",
    "model": {
        "config": {
            "architecture": "bert",
            "seed": 0,
            "overrides": {
                "num_hidden_layers": 2,
                "hidden_size": 32,
                "num_attention_heads": 2,
                "intermediate_size": 64,
                "vocab_size": 100,
                "max_position_embeddings": 64,
            },
        },
        "task": "feature-extraction",
        "attn_implementation": "eager",
    },
    "tools": {"python": f"{sys.version_info.major}.{sys.version_info.minor}"},
    "export": {"exporter": "torch", "opset": 18},
    "axes": {
        "batch": {"min": 1, "typical": 2, "max": 3},
        "sequence": {"min": 2, "typical": 8, "max": 16},
    },
    "inputs": [
        {
            "name": "input_ids",
            "dtype": "int64",
            "shape": ["batch", "sequence"],
            "sample": "token_ids",
        },
        {
            "name": "attention_mask",
            "dtype": "int64",
            "shape": ["batch", "sequence"],
            "sample": "padding_mask",
        },
        {
            "name": "token_type_ids",
            "dtype": "int64",
            "shape": ["batch", "sequence"],
            "sample": {"integers": [0, 2]},
        },
    ],
    "outputs": [
        {
            "name": "last_hidden_state",
            "dtype": "float32",
            "shape": ["batch", "sequence", 32],
            "mask": "attention_mask",
        }
    ],
    "verify": {"tolerance": {"max_abs": 1.0e-5, "cosine": 0.99999}},
    "targets": {
        "float32": OV,
        "bfloat16": OV | {"precision": "bfloat16", "tolerance": {"cosine": 0.999}},
        "mixed": OV
        | {
            "precision": {"default": "bfloat16", "keep_float32": ["encoder.layer.1"]},
            "tolerance": {"cosine": 0.999},
        },
        "float16": OV | {"precision": "float16", "tolerance": {"max_abs": 0.02}},
        "int8": OV | {"precision": {"quantize": "static-int8"}, "tolerance": {"cosine": 0.99}},
    },
}


def run(folder: Path, home: Path, toolchain: Any = "host", **changes: Any) -> RunOutcome:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(copy.deepcopy(RECIPE) | changes, sort_keys=False))
    return run_recipe(RunOptions(path, Home(home), toolchain=toolchain, track=False))


def by_target(outcome: RunOutcome) -> dict[str, TargetReport]:
    return {report.name: report for report in outcome.record.targets}


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> RunOutcome:
    return run(tmp_path_factory.mktemp("recipe"), tmp_path_factory.mktemp("home"))
