"""A mask's constant that becomes infinite, and that a guard against NaN absorbs: the outputs are
finite and wrong, and saturating the constant is what helps.
"""

from pathlib import Path

import numpy as np
import onnx
import pytest

from convkit.protocol.messages import LowPrecision
from convkit.worker.precision.diagnosis.low_precision_findings import PrecisionDiagnosis

# Attention that returns zeros where nothing can be attended to, as torch's does. In float32 the
# constant leaves equal scores; infinity leaves none.
GUARDED = """<ir_version: 9, opset_import: ["": 18]>
g (float[1,4] scores, bool[1,4] live) => (float[1,2] y)
<float low = {-3.4e38}, float zero = {0.0}, float[4,2] weight = {1, 2, 3, 4, 5, 6, 7, 8}> {
    mask = Where(live, zero, low)
    masked = Add(scores, mask)
    shares = Softmax(masked)
    none = IsNaN(shares)
    kept = Where(none, zero, shares)
    y = MatMul(kept, weight)
}"""


@pytest.mark.parametrize(("live", "errors"), [([0, 0, 0, 0], 1), ([1, 0, 1, 1], 0)])
def test_saturating_is_tried_where_it_is_the_remedy(
    tmp_path: Path, live: list[int], errors: int
) -> None:
    path = tmp_path / "model.onnx"
    model = onnx.parser.parse_model(GUARDED)
    for node, module in zip(model.graph.node, ("mask", *["attention"] * 5), strict=True):
        node.metadata_props.add(key="convkit.module", value=module)
    onnx.save(model, path)
    feeds = {"scores": -np.ones((1, 4), np.float32), "live": np.array([live], bool)}
    diagnosis = PrecisionDiagnosis(path, LowPrecision("float16"))
    found = [each for each in diagnosis.collapse("case", feeds) if each.is_error]
    assert [each.code for each in found] == ["N201"] * errors
    for finding in found:
        assert finding.evidence["proven"] is True
        assert finding.remedy is not None
        assert finding.remedy.change == {
            "target.precision": {"default": "float16", "saturate": True}
        }
