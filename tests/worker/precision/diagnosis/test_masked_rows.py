"""N205 is reported only if the mask itself made a softmax's rows minus infinity."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from convkit.protocol.messages import LowPrecision
from convkit.worker.precision.diagnosis.low_precision_findings import PrecisionDiagnosis

# The mask puts -1e9 where `keep` is 0; scores of -1 become -90000 where SCALE is 300.
GRAPH = """
<ir_version: 8, opset_import: ["": 17]>
masked (float[n, 4] scores, float[n, 4] keep) => (float[n, 4] y)
<float zero = {0.0}, float low = {-1000000000.0}, float scale = {SCALE}>
{
    large = Mul(scores, scale)
    larger = Mul(large, scale)
    kept = Greater(keep, zero)
    masked_scores = Where(kept, larger, low)
    y = Softmax <axis = -1> (masked_scores)
}
"""


def codes(folder: Path, scale: float, keep: list[float]) -> list[str]:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(GRAPH.replace("SCALE", str(scale))), path)
    feeds = {"scores": -np.ones((1, 4), np.float32), "keep": np.array([keep], np.float32)}
    diagnosis = PrecisionDiagnosis(path, LowPrecision(default="float16"))
    return [finding.code for finding in diagnosis.diagnose("case", feeds) if finding.is_error]


def test_a_row_that_the_mask_fills_is_fully_masked(tmp_path: Path) -> None:
    assert "N205" in codes(tmp_path, 1.0, [0, 0, 0, 0])


@pytest.mark.parametrize("keep", [[1, 1, 1, 1], [1, 1, 1, 0]])
def test_a_row_that_overflows_by_itself_is_not(tmp_path: Path, keep: list[float]) -> None:
    found = codes(tmp_path, 300.0, keep)
    assert found
    assert "N205" not in found
