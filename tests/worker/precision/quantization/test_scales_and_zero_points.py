"""Scales on the wrong axis: those that no runtime takes, and those that every runtime takes."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from small_models import convolutions, feeds, layers, parsed, write

from convkit.protocol.messages import Quantization
from convkit.worker.precision.quantization.quantize import quantize_file
from convkit.worker.precision.quantization.scales_and_zero_points import check_dequantization

RNG = np.random.default_rng(0)
# Columns of very different size, as trained layers have them.
SQUARE = (RNG.normal(size=(16, 16)) * np.logspace(-2, 1, 16)).astype(np.float32)


def scaled(weight: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray]:
    """Return int8 numbers and scales, one for each index of an axis."""
    other = tuple(index for index in range(weight.ndim) if index != axis)
    scales = np.abs(weight).max(axis=other) / 127
    shape = [1] * weight.ndim
    shape[axis] = -1
    return np.round(weight / scales.reshape(shape)).astype(np.int8), scales.astype(np.float32)


def dequantizing(
    numbers, scales, axis: int, zeros=None, *, consumer: str = "MatMul(x, w)"
) -> onnx.ModelProto:
    extra = "" if zeros is None else ", zero"
    return parsed(
        f"""g (float[n,{numbers.shape[0]}] x) => (float[n,m] y) {{
            w = DequantizeLinear<axis={axis}>(W_quantized, scale{extra})
            y = {consumer}
        }}""",
        {"W_quantized": numbers, "scale": scales} | ({} if zeros is None else {"zero": zeros}),
        {"y": "dense", "w": "dense"},
    )


def check(model: onnx.ModelProto, float32: onnx.ModelProto | None = None):
    return check_dequantization(
        ir.from_proto(model), ir.from_proto(float32) if float32 is not None else None
    )


def float32_of(weight: np.ndarray) -> onnx.ModelProto:
    return parsed("g (float[n,16] x) => (float[n,16] y) { y = MatMul(x, W) }", {"W": weight})


def test_a_length_that_fits_another_axis() -> None:
    numbers, scales = scaled(RNG.normal(size=(16, 24)).astype(np.float32), 1)
    assert check(dequantizing(numbers, scales, 1)) == []
    assert check(dequantizing(numbers, scales, -1)) == []
    (finding,) = check(dequantizing(numbers, scales, 0))
    assert (finding.code, finding.severity, finding.place.module) == ("Q104", "error", "dense")
    assert (
        "24 scales do not match axis 0, whose size is 16; 24 is the size of axis 1"
        in finding.message
    )


def test_an_axis_that_is_none() -> None:
    numbers, scales = scaled(SQUARE, 1)
    (finding,) = check(dequantizing(numbers, scales, 2))
    assert (finding.code, finding.severity, finding.place.module) == ("Q104", "error", "dense")
    assert "a weight of shape [16, 16] has no axis 2" in finding.message


def test_a_zero_point_of_another_shape() -> None:
    numbers, scales = scaled(SQUARE, 1)
    assert check(dequantizing(numbers, scales, 1, np.zeros(16, np.int8))) == []
    (finding,) = check(dequantizing(numbers, scales, 1, np.zeros(1, np.int8)))
    assert "zero points have shape [1] and its scales [16]" in finding.message


def test_a_square_weight_on_the_wrong_axis_runs_and_is_wrong() -> None:
    numbers, scales = scaled(SQUARE, 1)
    wrong = dequantizing(numbers, scales, 0)
    onnx.checker.check_model(wrong, full_check=True)
    session = onnxruntime.InferenceSession(
        wrong.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    x = np.eye(16, dtype=np.float32)
    assert np.abs(session.run(None, {"x": x})[0] - SQUARE).max() > 1
    (known,) = check(wrong, float32_of(SQUARE))
    assert "only along axis 1 do they restore the float32 weights" in known.message
    assert known.evidence["axis 1 dB"] > known.evidence["axis 0 dB"] + 20
    (alone,) = check(wrong)
    assert "its integers were scaled along axis 1, the channels" in alone.message


def test_a_square_weight_on_the_right_axis_is_fine_with_and_without_float32() -> None:
    right = dequantizing(*scaled(SQUARE, 1), 1)
    assert check(right) == []
    assert check(right, float32_of(SQUARE)) == []


def test_scales_for_each_row_are_no_fault_where_the_numbers_were_made_so() -> None:
    """Slower, since no integer kernel takes it, and right."""
    rows = dequantizing(*scaled(SQUARE, 0), 0)
    assert check(rows, float32_of(SQUARE)) == []
    assert check(rows) == []


@pytest.mark.parametrize(("turned", "right"), [(0, 1), (1, 0)])
def test_the_channels_of_a_gemm(turned: int, right: int) -> None:
    weight = SQUARE if right == 1 else np.ascontiguousarray(SQUARE.T)
    gemm = f"Gemm<transB={turned}>(x, w)"
    numbers, scales = scaled(weight, right)
    assert check(dequantizing(numbers, scales, right, consumer=gemm)) == []
    (finding,) = check(dequantizing(numbers, scales, 1 - right, consumer=gemm))
    assert f"scaled along axis {right}" in finding.message


def test_blocks() -> None:
    def blocks(scale_shape) -> onnx.ModelProto:
        return parsed(
            """g (float[n,32] x) => (float[n,8] y) {
                w = DequantizeLinear<axis=0, block_size=16>(W_quantized, scale)
                y = MatMul(x, w)
            }""",
            {"W_quantized": np.ones((32, 8), np.int8), "scale": np.ones(scale_shape, np.float32)},
            opset=21,
        )

    assert check(blocks((2, 8))) == []
    (finding,) = check(blocks((8, 2)))
    assert "blocks of 16 along axis 0 need [2, 8]" in finding.message


@pytest.mark.parametrize("kind", ["static-int8", "int4-weights"])
def test_what_the_quantizers_write_is_fine(tmp_path: Path, kind) -> None:
    for name, model, cases in (
        ("layers", layers(), feeds()),
        ("convolutions", convolutions(), [{"x": RNG.normal(size=(2, 3, 8, 8)).astype(np.float32)}]),
    ):
        source, made = write(model, tmp_path / name), tmp_path / name / "made.onnx"
        findings = quantize_file(source, made, Quantization(kind, format="qdq"), cases)
        assert [finding.code for finding in findings if finding.is_error] == []
        assert check_dequantization(ir.load(made)) == []
        assert check_dequantization(ir.load(made), ir.load(source)) == []


@pytest.mark.parametrize(
    ("scale", "zero"), [((1,), ()), ((), (1,)), ((), ()), ((1,), (1,))], ids=str
)
def test_one_scale_and_zero_point_may_be_scalars_or_lists_of_one(scale, zero):
    numbers = np.ones((16, 16), np.int8)
    model = dequantizing(numbers, np.full(scale, 0.1, np.float32), 1, zeros=np.zeros(zero, np.int8))
    assert check(model) == []


def test_an_int32_bias_as_onnxruntimes_quantizer_writes_it_is_accepted():
    model = parsed(
        """g (float[n,4] x) => (float[n,4] y) {
            b = DequantizeLinear(bias_quantized, scale, zero)
            y = Add(x, b)
        }""",
        {
            "bias_quantized": np.arange(4, dtype=np.int32),
            "scale": np.array([0.01], np.float32),
            "zero": np.array(0, np.int32),
        },
        {"y": "dense", "b": "dense"},
    )
    assert check(model) == []


def test_unequal_counts_of_scales_and_zero_points_are_still_wrong():
    numbers, scales = scaled(SQUARE, 1)
    (finding,) = check(dequantizing(numbers, scales, 1, zeros=np.zeros(1, np.int8)))
    assert finding.code == "Q104"
