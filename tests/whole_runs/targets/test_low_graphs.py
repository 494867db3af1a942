"""Graphs that come in float16 by themselves: the CPU hides what they do, so they are simulated as
well.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from test_low_precision import codes, evidence, found, run, write_recipe


def half_model(path: Path, weight: float) -> None:
    """Write y = (x @ w) * 1e-5 in float16 between float32 borders; beyond float16's range where w
    is large.
    """
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    weights = [
        numpy_helper.from_array(np.full((4, 4), weight, np.float16), "w"),
        numpy_helper.from_array(np.array(1e-3, np.float16), "scale"),
    ]
    nodes = [
        helper.make_node("Cast", ["x"], ["half"], name="/enter/Cast", to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["half", "w"], ["product"], name="/product/MatMul"),
        helper.make_node("Mul", ["product", "scale"], ["small"], name="/scale/Mul"),
        helper.make_node("Cast", ["small"], ["y"], name="/leave/Cast", to=TensorProto.FLOAT),
    ]
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )


def recipe(folder: Path, precision: Any) -> Path:
    outputs = [{"name": "y", "dtype": "float32", "shape": ["batch", 4]}]
    verify = {"tolerance": {"max_abs": 5e-5}}
    return write_recipe(
        folder, "", precision, model={"onnx": "model.onnx"}, outputs=outputs, verify=verify
    )


@pytest.mark.parametrize("precision", ["float32", "float16"])
@pytest.mark.thorough
def test_a_file_in_float16_that_overflows_fails_though_the_cpu_passes_it(
    tmp_path: Path, precision: str
) -> None:
    half_model(tmp_path / "model.onnx", 60000.0)
    session = onnxruntime.InferenceSession(
        str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"]
    )
    assert np.isfinite(session.run(None, {"x": np.ones((1, 4), np.float32)})[0]).all()  # the trap
    outcome = run(recipe(tmp_path, precision), tmp_path / "home")
    assert outcome.record.status == "failed"
    assert evidence(outcome) == "simulated"
    assert codes(outcome) >= {"N102", "N202"}
    assert outcome.record.targets[0].headline.startswith("N202")
    (finding,) = found(outcome, "N202")
    assert finding.place.node == "/product/MatMul"
    assert finding.evidence["float32_magnitude"] > 65504  # type: ignore[operator]


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_one_that_does_not_overflow_is_verified_in_simulation(
    tmp_path: Path, precision: str
) -> None:
    half_model(tmp_path / "model.onnx", 0.5)
    outcome = run(recipe(tmp_path, precision), tmp_path / "home")
    assert outcome.record.status == "verified"
    assert evidence(outcome) == "simulated"
    found = [each.code for each in outcome.record.findings if each.severity != "note"]
    # Outputs near zero meet a limit that is tight for float16 in general, which N502 says.
    assert found == ([] if precision == "float32" else ["N502"])
