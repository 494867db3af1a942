"""Originals whose weights are bfloat16 or float16, through `convkit run` whole: real exports, real
runtimes.
"""

from pathlib import Path

import pytest
import yaml

from convkit.host.facts.processor_features import processor
from convkit.host.home import Home
from convkit.host.run.run_command import run_recipe
from convkit.host.run.run_options import RunOptions, RunOutcome

pytestmark = [pytest.mark.processors, pytest.mark.slow]

SMALL = {
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "vocab_size": 101,
    # Logits far from zero: their differences are measured, not their rounding.
    "initializer_range": 0.2,
}


def run(tmp_path: Path, dtype: str) -> RunOutcome:
    recipe = {
        "schema": 1,
        "name": "half",
        "model": {
            "config": {"architecture": "llama", "seed": 3, "overrides": SMALL},
            "task": "text-generation",
            "dtype": dtype,
        },
        "axes": {
            "batch": {"min": 1, "typical": 2, "max": 3},
            "sequence": {"min": 1, "typical": 9, "max": 16},
        },
        "inputs": [
            {
                "name": "input_ids",
                "dtype": "int64",
                "shape": ["batch", "sequence"],
                "sample": {"integers": [0, 100]},
            },
            {
                "name": "attention_mask",
                "dtype": "int64",
                "shape": ["batch", "sequence"],
                "sample": "padding_mask",
            },
        ],
        "outputs": [{"name": "logits", "dtype": dtype, "shape": ["batch", "sequence", 101]}],
        "verify": {"ladder": "quick"},
        "targets": {
            "int4": {"runtime": "onnxruntime", "precision": {"quantize": "int4-weights"}},
            # Eight bits saturate on processors without VNNI.
            "int8": {
                "runtime": "onnxruntime",
                "precision": {"quantize": "static-int8", "reduce_range": True},
            },
            "float16": {"runtime": "onnxruntime", "precision": "float16"},
            "openvino": {"runtime": "openvino"},
        },
    }
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe, sort_keys=False))
    return run_recipe(RunOptions(path, Home(tmp_path / "home"), toolchain="host", track=False))


@pytest.mark.parametrize("dtype", ["bfloat16", pytest.param("float16", marks=pytest.mark.thorough)])
def test_it_is_verified_in_every_precision_masked_rows_included(tmp_path: Path, dtype: str) -> None:
    outcome = run(tmp_path, dtype)
    targets = {target.name: target for target in outcome.record.targets}
    wrong_name = None
    if dtype == "bfloat16" and "avx512f" not in processor().features:
        wrong_name = "openvino"
        # OpenVINO 2026.4 computes equal shares for a softmax over minus infinity without AVX-512,
        # where others compute NaN, which the graph replaces by zero: a fully masked row is wrong
        # there, and the runtime is.
        wrong = targets[wrong_name]
        assert wrong.status == "failed"
        assert {case.case for v in wrong.verifications for case in v.cases if not case.passed} == {
            "masked-row"
        }
    right = [target for target in targets.values() if target.name != wrong_name]
    assert {target.name: target.status for target in right} == dict.fromkeys(
        [target.name for target in right], "verified"
    )
    for target in right:
        cases = {case.case: case for case in target.verifications[0].cases}
        assert {"smallest", "typical", "padded", "masked-row"} <= {*cases}
        (judged,) = cases["masked-row"].outputs
        # Not one of the two computes without rounding, and both compute the same.
        assert 0 < judged.metrics.nrmse < 0.4
    widened = {
        target: finding.evidence["types"]
        for target in ("int4", "int8")
        for finding in targets[target].findings
        if finding.code == "Q110"
    }
    assert widened == {"int4": [dtype], "int8": [dtype]}
    (derived,) = (each for each in targets["openvino"].findings if each.code == "N507")
    assert derived.evidence["type"] == dtype
