"""Models that a runtime has no kernels for, through `convkit run` whole: named before the session,
and repaired.
"""

from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper
from shared_keys import tokens
from test_low_precision import codes, found, run, write_recipe

from convkit.host.home import Home
from convkit.host.repair.repair_command import repair_recipe
from convkit.host.run.run_options import RunOptions

QWEN2 = {
    "model": {
        "config": {
            "architecture": "qwen2",
            "seed": 1,
            "overrides": {
                "num_hidden_layers": 1,
                "hidden_size": 32,
                "num_attention_heads": 2,
                "num_key_value_heads": 1,
                "intermediate_size": 64,
                "vocab_size": 100,
                "max_position_embeddings": 64,
                "use_cache": False,
            },
        },
        "attn_implementation": "eager",
    },
    "export": {"exporter": "torch", "opset": 18},
    "axes": {
        "batch": {"min": 1, "typical": 2, "max": 3},
        "sequence": {"min": 2, "typical": 6, "max": 12},
    },
    "inputs": [tokens("input_ids", "token_ids"), tokens("attention_mask", "padding_mask")],
    "outputs": [
        {"name": "last_hidden_state", "dtype": "float32", "shape": ["batch", "sequence", 32]}
    ],
    "verify": {"tolerance": {"max_abs": 1e-4}, "skip": ["masked-row"]},
}


def in_bfloat16() -> dict[str, Any]:
    model = {**QWEN2["model"], "dtype": "bfloat16"}  # type: ignore[dict-item]
    outputs = [
        {"name": "last_hidden_state", "dtype": "bfloat16", "shape": ["batch", "sequence", 32]}
    ]
    return {**QWEN2, "model": model, "outputs": outputs}


@pytest.mark.slow
@pytest.mark.thorough
def test_qwen2_in_bfloat16_is_named_before_a_session_fails(tmp_path: Path) -> None:
    outcome = run(write_recipe(tmp_path, "", "float32", **in_bfloat16()), tmp_path / "home")
    assert outcome.record.status == "failed"
    assert codes(outcome) == {"T101"}
    (finding,) = found(outcome, "T101")
    kinds = {entry["operator"] for entry in finding.evidence["operators"]}  # type: ignore[union-attr,index,call-overload]
    assert {"Add", "MatMul", "Where"} <= kinds
    assert (finding.place.source or "").startswith("transformers/models/qwen2/modeling_qwen2.py:")
    assert finding.remedy is not None
    assert finding.remedy.change == {"model.dtype": "float32"}
    assert outcome.record.targets[0].headline.startswith("T101 onnxruntime")


@pytest.mark.slow
@pytest.mark.thorough
def test_its_remedy_verifies(tmp_path: Path) -> None:
    changed = {**QWEN2, "model": {**QWEN2["model"], "dtype": "float32"}}  # type: ignore[dict-item]
    outcome = run(write_recipe(tmp_path, "", "float32", **changed), tmp_path / "home")
    assert outcome.record.status == "verified"


def test_somebody_else_s_mixed_types_are_named(tmp_path: Path) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], name="/norm/Cast", to=TensorProto.FLOAT16),
        helper.make_node("Mul", ["x", "h"], ["y"], name="/norm/Mul"),
    ]
    graph = helper.make_graph(nodes, "net", [x], [y])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        tmp_path / "m.onnx",
    )
    outputs = [{"name": "y", "dtype": "float32", "shape": ["batch", 4]}]
    recipe = write_recipe(tmp_path, "", "float32", model={"onnx": "m.onnx"}, outputs=outputs)
    outcome = run(recipe, tmp_path / "home")
    assert outcome.record.status == "failed"
    assert "T102" in codes(outcome)
    (finding,) = found(outcome, "T102")
    assert finding.place.node == "/norm/Mul"


@pytest.mark.slow
@pytest.mark.thorough
def test_it_is_repaired_by_loading_it_in_float32(tmp_path: Path) -> None:
    recipe = write_recipe(tmp_path, "", "float32", **in_bfloat16())
    outcome = repair_recipe(
        RunOptions(recipe, Home(tmp_path / "home"), toolchain="host", track=False)
    )
    assert outcome.repaired, outcome.ending
    assert outcome.steps[0].code == "T101"
    assert outcome.steps[0].change == {"model.dtype": "float32"}
    assert "dtype: float32" in outcome.text
