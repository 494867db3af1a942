"""Means whose sums float16 does not hold."""

from pathlib import Path

import numpy as np
import onnx
import pytest

from convkit.worker.verification.wide_sums import wide_sums

GRAPH = """
    <ir_version: 8, opset_import: ["" : 18]>
    agraph (float[1, 2, h, w] x) => (float[1, 2] y) <int64[2] axes = {2, 3}> {
        y = ReduceMean<keepdims = 0>(x, axes)
    }
"""


def found(folder: Path, side: int, value: float) -> list[str]:
    onnx.save(onnx.parser.parse_model(GRAPH), folder / "model.onnx")
    x = np.full((1, 2, side, side), value, np.float32)
    return [finding.message for finding in wide_sums(folder / "model.onnx", {"x": x})]


def test_a_large_mean_is_warned_of_with_the_devices(tmp_path: Path) -> None:
    (message,) = found(tmp_path, 512, 1.0)
    assert "adds up 262144 values to 2.62e+05, beyond float16's 65504" in message
    assert "Neural Engine" in message


def test_a_module_kept_in_float32_and_a_single_value_are_not(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(GRAPH)
    model.graph.node[0].name = "/pool/ReduceMean"
    onnx.save(model, tmp_path / "model.onnx")
    x = np.ones((1, 2, 512, 512), np.float32)
    for kept, count in (((), 1), (("other",), 1), (("pool",), 0), (("**",), 0)):
        assert len(wide_sums(tmp_path / "model.onnx", {"x": x}, kept)) == count
    assert found(tmp_path, 1, 1e5) == []


@pytest.mark.parametrize(("side", "value"), [(512, 0.2), (16, 100.0), (512, 0.0)])
def test_a_sum_within_the_range_is_not(tmp_path: Path, side: int, value: float) -> None:
    assert found(tmp_path, side, value) == []
