"""One tensor in a simulation, also if a lowered graph has left out the cast that made it."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import LowPrecision
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.diagnosis.low_precision_findings import PrecisionDiagnosis
from convkit.worker.precision.diagnosis.simulated_tensor import simulated_tensor
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign

# Scores pass through a cast that changes nothing, as exports of T5 write it.
MASKED = """
<ir_version: 8, opset_import: ["": 17]>
scores (float[2,4] x, float[2,4] kept) => (float[2,4] y)
<float one = {1.0}, float most = {-3.4e38}>
{
    hidden = Sub(one, kept)
    mask = Mul(hidden, most)
    masked = Add(x, mask)
    taken = Cast<to=1>(masked)
    y = Softmax(taken)
}
"""
FEEDS = {"x": np.ones((2, 4), np.float32), "kept": np.array([[1, 1, 0, 0], [0] * 4], np.float32)}


def saved(folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(MASKED), path)
    return path


@pytest.mark.parametrize("tensor", ["masked", "taken"])
def test_a_cast_that_is_left_out_holds_what_it_was_given(tmp_path: Path, tensor: str) -> None:
    model = prepare(load_model(saved(tmp_path)))
    assignment = assign(model, PrecisionPlan("float16", ()))
    found = simulated_tensor(model, assignment, tensor, FEEDS, saturate=True)
    assert found is not None
    np.testing.assert_array_equal(found[0], [1, 1, -65504, -65504])


def test_an_unknown_tensor_has_no_values(tmp_path: Path) -> None:
    model = prepare(load_model(saved(tmp_path)))
    assignment = assign(model, PrecisionPlan("float16", ()))
    assert simulated_tensor(model, assignment, "nothing", FEEDS, saturate=True) is None


def test_a_row_that_is_fully_masked_behind_a_cast_is_explained(tmp_path: Path) -> None:
    found: list[Finding] = PrecisionDiagnosis(saved(tmp_path), LowPrecision("float16")).diagnose(
        "masked-row", FEEDS
    )
    assert "N201" in [finding.code for finding in found]
