from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from small_models import feeds, layers, parsed, write

from convkit.protocol.messages import Calibration, Quantization
from convkit.worker.job_context import UnfitDataError
from convkit.worker.precision.quantization.calibration_data import feeds_from_file
from convkit.worker.precision.quantization.quantize import quantize_file

STATIC = Quantization("static-int8")


def ranges(folder: Path, model: onnx.ModelProto, cases):
    findings = quantize_file(write(model, folder), folder / "made.onnx", STATIC, cases)
    return [finding for finding in findings if finding.code != "Q105"]


def test_q106_an_error_where_a_range_is_not_finite(tmp_path: Path) -> None:
    """The quantizer's own calibration passes over NaN."""
    cases = [*feeds(), {"x": np.full((2, 32), np.nan, np.float32)}]
    findings = ranges(tmp_path, layers(), cases)
    assert {finding.code for finding in findings} == {"Q106", "Q101"}
    assert all(finding.is_error for finding in findings)
    assert "64 NaN or infinite elements" in findings[0].message
    assert findings[0].place.module == "block.0.dense"


def test_q106_a_warning_where_a_tensor_is_constant(tmp_path: Path) -> None:
    *first, last = ranges(tmp_path, layers(), [{"x": np.zeros((2, 32), np.float32)}])
    assert (first[0] if first else last).code == "Q106"
    assert (first[0] if first else last).severity == "warning"
    assert "'x' (in block.0.dense) is 0 everywhere" in (first[0] if first else last).message


def test_q106_a_mask_keeps_its_node_in_float32(tmp_path: Path) -> None:
    model = parsed(
        """g (float[n,16] x, float[n,16] m) => (float[n,16] y) {
            masked = Add(x, m)
            p = MatMul(masked, W)
            h = Tanh(p)
            y = MatMul(h, V)
        }""",
        {"W": np.eye(16, dtype=np.float32), "V": np.eye(16, dtype=np.float32)},
        {"p": "masked", "y": "free"},
    )
    mask = np.zeros((3, 16), np.float32)
    mask[:, 9:] = -1e9
    findings = ranges(tmp_path, model, [{"x": np.ones((3, 16), np.float32), "m": mask}])
    assert {finding.code for finding in findings} == {"Q106"}
    assert (
        "ranges from -1e+09 to 1, in steps of 3.92e+06; its node stays in float32"
        in findings[0].message
    )
    weights = {one.name for one in onnx.load(tmp_path / "made.onnx").graph.initializer}
    assert "W" in weights
    assert "V" not in weights


def test_typical_cases_give_no_finding(tmp_path: Path) -> None:
    assert ranges(tmp_path, layers(), feeds()) == []


INPUTS = ir.from_onnx_text(
    '<ir_version: 8, opset_import: ["" : 18]> g (float[n,4] x, int64[n] ids) => (float[n,4] y) { y'
    " = Identity(x) }"
).graph.inputs
X, IDS = np.zeros((3, 2, 4), np.float32), np.zeros((3, 2), np.int64)


def test_a_files_samples(tmp_path: Path) -> None:
    np.savez(tmp_path / "c.npz", ids=IDS, x=X)
    samples = feeds_from_file(tmp_path / "c.npz", INPUTS)
    assert [list(sample) for sample in samples] == [["x", "ids"]] * 3
    assert samples[0]["x"].shape == (2, 4)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X}, "has x; the inputs are x, ids"),
        ({"x": X, "ids": IDS[:2]}, "as many samples of each input; it has x: 3, ids: 2"),
        (
            {"x": X.astype(np.float64), "ids": IDS},
            "x is float64 in c.npz, and the model takes float32",
        ),
        ({"x": X[0], "ids": IDS}, "samples of each"),
        ({"x": X[:, 0], "ids": IDS}, r"shape \[3, 4\] in c.npz, and needs \[samples, n, 4\]"),
        ({"x": X[..., :3], "ids": IDS}, r"x has the shape \[3, 2, 3\] in c.npz"),
        ({"x": X[:0], "ids": IDS[:0]}, "as many samples"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, arrays, message) -> None:
    np.savez(tmp_path / "c.npz", **arrays)
    with pytest.raises(UnfitDataError, match=message) as caught:
        feeds_from_file(tmp_path / "c.npz", INPUTS)
    (finding,) = caught.value.findings
    assert (finding.code, finding.message) == ("E412", str(caught.value))
    assert finding.evidence == {"key": "precision.calibration.file"}


@pytest.mark.parametrize(("x", "suggested"), [(X[:, 0], True), (X[..., :3], False)])
def test_rows_become_samples_if_that_is_all_they_need(tmp_path: Path, x, suggested: bool) -> None:
    np.savez(tmp_path / "c.npz", x=x, ids=IDS)
    with pytest.raises(UnfitDataError) as caught:
        feeds_from_file(tmp_path / "c.npz", INPUTS)
    (finding,) = caught.value.findings
    assert finding.remedy is not None
    assert ("Save x[:, None]" in finding.remedy.text) == suggested
    if suggested:
        np.savez(tmp_path / "c.npz", x=x[:, None], ids=IDS[:, :1])
        assert len(feeds_from_file(tmp_path / "c.npz", INPUTS)) == len(x)


def test_no_archive(tmp_path: Path) -> None:
    (tmp_path / "c.npz").write_text("no archive")
    with pytest.raises(UnfitDataError, match=r"c\.npz cannot be read"):
        feeds_from_file(tmp_path / "c.npz", INPUTS)


def test_a_file_takes_the_place_of_the_cases(tmp_path: Path) -> None:
    """Ranges of the file's values, not of the cases': larger ones are clipped."""
    np.savez(tmp_path / "c.npz", x=np.full((1, 2, 32), 0.1, np.float32))
    source = write(layers(), tmp_path)
    scales = []
    for name, calibration in (("a", None), ("b", Calibration(file=str(tmp_path / "c.npz")))):
        quantize_file(
            source,
            tmp_path / f"{name}.onnx",
            Quantization("static-int8", calibration=calibration),
            feeds(),
        )
        constants = {
            one.name: one for one in onnx.load(tmp_path / f"{name}.onnx").graph.initializer
        }
        scales.append(float(onnx.numpy_helper.to_array(constants["x_scale"])))
    assert scales[1] < scales[0] / 10
