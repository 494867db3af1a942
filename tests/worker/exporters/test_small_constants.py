"""Constants that onnxscript's optimizer takes for 0 or 1 stay in the graph."""

import numpy as np
import onnx
import pytest
from tiny_models import AXES, X, export_factory, module, run_onnx, tensor

from convkit.protocol.contract import Contract
from convkit.worker.exporters.small_constants import is_confusable


@pytest.mark.parametrize(
    ("body", "zero", "expected"),
    [
        ("return (x + 1e-12).log()", 0.0, np.log(np.float32(1e-12))),
        ("return x / (x.norm(dim=-1, keepdim=True) + 1e-20)", 0.0, 0.0),
        ("return (x - 1e-9) * 1e9", 0.0, -1.0),
        ("return (x * 1.000005 - x) * 1e6", 1.0, (np.float32(1.000005) - 1) * 1e6),
    ],
)
@pytest.mark.sampled(2)
def test_the_constant_is_computed_with(tmp_path, body, zero, expected):
    contract = Contract((X,), (tensor("y", *X.shape),), AXES)
    _, findings, out = export_factory(tmp_path, module(body), contract)
    assert findings == []
    (y,) = run_onnx(out, {"x": np.full((2, 3, 4), zero, np.float32)})
    np.testing.assert_allclose(y, expected, rtol=1e-3)
    graph = onnx.load(out / "model.onnx").graph
    assert [value.name for value in graph.input] == ["x"]


def test_true_zeros_and_ones_are_still_removed(tmp_path):
    contract = Contract((X,), (tensor("y", *X.shape),), AXES)
    code = module("return ((x + 0.0) * 1.0 + 1e-12).log()")
    _, _, out = export_factory(tmp_path, code, contract)
    assert [node.op_type for node in onnx.load(out / "model.onnx").graph.node] == ["Add", "Log"]


def test_only_almost_zeros_and_ones_are_confusable():
    assert [is_confusable(value) for value in (0.0, 1.0, 0.5, -1.0, 1e-5, 6.0, float("nan"))] == [
        False
    ] * 7
    assert all(is_confusable(value) for value in (1e-12, -1e-9, 1.00001, 0.99999))
