"""Causes inside the branch of an If, and overflows that later operations absorb."""

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
from convkit.worker.precision.diagnosis.taken_branches import open_taken_branches
from convkit.worker.precision.tensor_statistics import open_session

# A logarithm of power, as speech models compute it, in the branch of one sampling rate.
NESTED = """
<ir_version: 8, opset_import: ["": 17]>
rates (float[n] x, int64 rate) => (float[n] y)
<int64 low = {8000}, float power = {1048576.0}, float one = {1.0}>
{
    is_low = Equal(rate, low)
    y = If (is_low) <
        then_branch = slow () => (float[n] slow_y) { slow_y = Neg(x) },
        else_branch = fast () => (float[n] fast_y) {
            some = Size(x)
            none = Constant<value_int=0>()
            filled = Greater(some, none)
            fast_y = If (filled) <
                then_branch = full () => (float[n] full_y) {
                    scaled = Mul(x, power)
                    raised = Add(scaled, one)
                    full_y = Reciprocal(raised)
                },
                else_branch = empty () => (float[n] empty_y) { empty_y = Identity(x) }
            >
        }
    >
}
"""
FLAT = """
<ir_version: 8, opset_import: ["": 17]>
flat (float[n] x, float[n] row) => (float[n] y) <float large = {CONSTANT}>
{
    product = Mul(row, large)
    y = Reciprocal(product)
}
"""


def saved(folder: Path, text: str) -> Path:
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return path


def rates(rate: int) -> dict[str, np.ndarray]:
    return {"x": np.array([1e-6, 2e-6], np.float32), "rate": np.array(rate, np.int64)}


def explained(path: Path, feeds: dict[str, np.ndarray]) -> list[Finding]:
    return PrecisionDiagnosis(path, LowPrecision("float16")).collapse("case", feeds)


@pytest.mark.parametrize(("rate", "operators"), [(8000, ["Neg"]), (16000, ["Reciprocal"])])
def test_the_branch_that_a_case_takes_replaces_the_if_and_computes_the_same(
    tmp_path: Path, rate: int, operators: list[str]
) -> None:
    path = saved(tmp_path, NESTED)
    model = prepare(load_model(path))
    before = len(list(model.graph.all_nodes()))
    opened = open_taken_branches(model, rates(rate), 1)
    kinds = [node.op_type for node in opened.graph]
    assert "If" not in kinds
    assert [kind for kind in kinds if kind in ("Neg", "Reciprocal")] == operators
    outputs = [open_session(each, None, 1).run(["y"], rates(rate))[0] for each in (path, opened)]
    np.testing.assert_array_equal(*outputs)
    assert len(list(model.graph.all_nodes())) == before


def test_a_graph_without_branches_is_not_copied(tmp_path: Path) -> None:
    model = prepare(load_model(saved(tmp_path, FLAT.replace("CONSTANT", "2.0"))))
    assert open_taken_branches(model, {}, 1) is model


def test_a_constant_in_a_taken_branch_is_the_cause(tmp_path: Path) -> None:
    (finding,) = explained(saved(tmp_path, NESTED), rates(16000))
    assert (finding.code, finding.is_error, finding.place.tensor) == ("N201", True, "power")
    assert "outputs are finite but wrong in case 'case'" in finding.message


def test_a_constant_in_the_other_branch_is_not(tmp_path: Path) -> None:
    assert explained(saved(tmp_path, NESTED), rates(8000)) == []


@pytest.mark.parametrize(("row", "saturates"), [([1, 1], True), ([1, 0.37], False)])
def test_only_what_multiplies_zeros_and_ones_is_a_mask_to_saturate(
    tmp_path: Path, row: list[float], *, saturates: bool
) -> None:
    path = saved(tmp_path, FLAT.replace("CONSTANT", "2000000.0"))
    feeds = {"x": np.ones(2, np.float32), "row": np.array(row, np.float32)}
    (finding,) = explained(path, feeds)
    assert finding.code == "N201"
    assert finding.remedy is not None
    assert ("saturate" in str(finding.remedy.change)) is saturates


def test_an_absorbed_constant_that_does_no_harm_is_a_note(tmp_path: Path) -> None:
    """A softmax bears minus infinity next to a position that is not masked."""
    text = """<ir_version: 8, opset_import: ["": 17]>
        masked (float[n] x) => (float[n] y) <float[2] mask = {0.0, -3e38}> {
            scores = Add(x, mask)
            y = Softmax(scores)
        }"""
    (finding,) = explained(saved(tmp_path, text), {"x": np.ones(2, np.float32)})
    assert (finding.code, finding.severity) == ("N201", "note")
