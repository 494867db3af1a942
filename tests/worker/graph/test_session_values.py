"""bfloat16 inputs and outputs of real onnxruntime sessions."""

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest

from convkit.host.draft.surveyed_model import tolerances_of
from convkit.protocol.messages import SurveyRequest
from convkit.protocol.numpy_dtypes import BFLOAT16_BITS
from convkit.worker.graph.graph_session import open_graph
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.sessions import RunFailedError
from convkit.worker.stages.survey_file import run

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'
SUM = """g (bfloat16[n,2] a, float[n,2] x) => (bfloat16[n,2] y, float[n,2] z) {
    b = Cast<to=1>(a)
    z = Add(b, x)
    y = Cast<to=16>(z)
}"""
A = np.array([[1.5, -2.0], [0.25, 3.0]], ml_dtypes.bfloat16)
X = np.array([[1.0, 0.125], [1e-3, 2.0]], np.float32)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(HEADER + SUM), path)
    return path


@pytest.mark.parametrize("a", [A, A.view(BFLOAT16_BITS)], ids=["ml_dtypes", "bits"])
def test_bfloat16_goes_in_and_comes_out_bit_by_bit(file, a):
    outputs = open_graph(file).run({"a": a, "x": X})
    expected = A.astype(np.float32) + X
    np.testing.assert_array_equal(outputs["z"], expected)
    bits = outputs["y"].view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(bits, expected.astype(ml_dtypes.bfloat16))


def test_no_rows_of_bfloat16(file):
    outputs = open_graph(file).run({"a": A[:0], "x": X[:0]})
    assert outputs["y"].shape == (0, 2)


def test_outputs_outlive_the_next_run(file):
    session = open_graph(file)
    first = session.run({"a": A, "x": X})["y"]
    kept = first.tobytes()
    session.run({"a": A, "x": X + 1})
    assert first.tobytes() == kept


def test_an_input_of_another_type_beside_bfloat16_is_refused_by_name(file):
    with pytest.raises(RunFailedError, match=r"'x' is a tensor\(double\); .*tensor\(float\)"):
        open_graph(file).run({"a": A, "x": X.astype(np.float64)})


def test_a_missing_input_beside_bfloat16_is_refused(file):
    with pytest.raises(RunFailedError, match="x"):
        open_graph(file).run({"a": A})


def test_texts_beside_bfloat16_are_refused_by_name(tmp_path):
    text = """g (string[n] words, bfloat16[n] a) => (string[n] same, bfloat16[n] b) {
        same = Identity(words)
        b = Identity(a)
    }"""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(HEADER + text), path)
    with pytest.raises(RunFailedError, match="strings \\('words'\\)"):
        open_graph(path).run({"words": np.array(["one", "two"]), "a": A[0]})


def test_a_file_with_bfloat16_is_surveyed(file):
    found, _ = run(SurveyRequest(str(file), 30.0), Context(file.parent))
    assert found.ran
    assert [spec.dtype for spec in found.contract.inputs] == ["bfloat16", "float32"]
    assert found.magnitudes["y"] == pytest.approx(found.magnitudes["z"], rel=2**-8)
    # Two units in the last place of the largest value, rounded up to one digit.
    least = 2 * 2**-7 * found.magnitudes["y"]
    limit = tolerances_of(found)["y"]["max_abs"]
    assert isinstance(limit, float)
    assert least <= limit < 2.1 * least
