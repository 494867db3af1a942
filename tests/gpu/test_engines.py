"""Engines for real, where TensorRT's libraries are installed beside the GPU."""

from pathlib import Path
from typing import Any

import pytest
from shared_keys import TOOLS
from test_low_precision import OVERFLOWING, run, write_recipe
from test_shipped_models import changed

pytest.importorskip("tensorrt", reason="TensorRT's libraries are not installed")

HARMLESS = OVERFLOWING.replace("60000.0", "0.5")


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_an_engine_is_built_and_holds(precision: str, tmp_path: Path) -> None:
    targets = {"trt": {"runtime": "tensorrt", "precision": precision}}
    outcome = run(write_recipe(tmp_path, HARMLESS, precision, targets=targets), tmp_path / "home")
    (target,) = outcome.record.targets
    assert (target.status, target.verifications[0].evidence) == ("verified", "device")
    assert "models/trt/model.engine" in target.files
    assert not [finding for finding in outcome.record.findings if finding.code == "E214"]


def test_the_bert_classifiers_engines_hold(tmp_path: Path) -> None:
    overrides: dict[str, Any] = {
        "vocab_size": 21128,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_labels": 2,
    }
    overrides |= {"num_attention_heads": 2, "intermediate_size": 64}
    config = {"architecture": "bert", "seed": 0, "overrides": overrides}
    model = {"config": config, "task": "text-classification", "attn_implementation": "eager"}
    outcome = run(
        changed(tmp_path, "bert-base-chinese", model=model, tools=TOOLS), tmp_path / "home"
    )
    assert {target.status for target in outcome.record.targets} == {"verified"}
