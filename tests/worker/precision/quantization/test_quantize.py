"""Files quantized by the real quantizers: what they hold, what they keep, what is said of them."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from small_models import convolutions, feeds, gptq, layers, parsed, write

from convkit.protocol.messages import Calibration, Quantization
from convkit.worker.graph.node_origins import MODULE_KEY
from convkit.worker.job_context import StageFailedError
from convkit.worker.precision.quantization.quantize import quantize_file
from convkit.worker.precision.quantization.quantized_weights import signal_to_noise

KINDS = [
    Quantization("dynamic-int8"),
    Quantization("dynamic-int8", per_channel=False),
    Quantization("dynamic-int8", reduce_range=True),
    Quantization("static-int8"),
    Quantization("static-int8", per_channel=False),
    Quantization("static-int8", format="operators"),
    Quantization("static-int8", calibration=Calibration("entropy")),
    Quantization("static-int8", calibration=Calibration("percentile", 99.9)),
    Quantization("int4-weights"),
    Quantization("int4-weights", format="qdq", block_size=16),
]


def name_of(quantization: Quantization) -> str:
    calibration = quantization.calibration
    parts = [
        quantization.quantize,
        quantization.format,
        quantization.block_size,
        calibration and calibration.method,
    ]
    parts += [
        "tensor" if not quantization.per_channel else None,
        "reduced" if quantization.reduce_range else None,
    ]
    return "-".join(str(part) for part in parts if part is not None)


def quantize(model: onnx.ModelProto, folder: Path, quantization: Quantization, cases=None, **how):
    source = write(model, folder, **how)
    destination = folder / "quantized.onnx"
    return destination, quantize_file(
        source, destination, quantization, feeds() if cases is None else cases
    )


def run(model: Path, feed) -> np.ndarray:
    return onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"]).run(
        None, feed
    )[0]


def operators(model: Path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(model, load_external_data=False).graph.node)


def modules(model: Path) -> dict[str, str]:
    graph = onnx.load(model, load_external_data=False).graph
    return {
        node.output[0]: prop.value
        for node in graph.node
        for prop in node.metadata_props
        if prop.key == MODULE_KEY
    }


def codes(findings) -> list[str]:
    return [
        finding.code for finding in findings if finding.code != "Q105"
    ]  # Q105 speaks of this machine


@pytest.mark.parametrize("quantization", KINDS, ids=name_of)
def test_results_are_near_and_the_border_metadata_and_modules_stay(
    tmp_path: Path, quantization: Quantization
) -> None:
    original = layers()
    model, findings = quantize(original, tmp_path, quantization, external=True)
    assert codes(findings) == (
        ["Q107"] if quantization.uses_qdq and quantization.block_size else []
    )
    (case,) = feeds(count=1, seed=9)
    decibels = signal_to_noise(run(tmp_path / "model.onnx", case), run(model, case))
    assert 15 < decibels < 60  # near, and rounded
    made = onnx.load(model, load_external_data=False)
    assert made.graph.input == original.graph.input
    assert made.graph.output == original.graph.output
    assert {prop.key: prop.value for prop in made.metadata_props} == {
        "convkit.contract": "kept as it is"
    }
    assert made.producer_name == original.producer_name
    assert {*modules(model).values()} == {"block.0.dense", "block.0.act", "block.1.dense"}
    assert all(
        any(prop.key == MODULE_KEY for prop in node.metadata_props) for node in made.graph.node
    )
    assert (
        model.with_name("quantized.onnx.data").stat().st_size < 4 * 32 * 32
    )  # half a weight of two


def test_what_kind_makes_which_operators(tmp_path: Path) -> None:
    made = {
        name_of(kind): operators(quantize(layers(), tmp_path / name_of(kind), kind)[0])
        for kind in KINDS
    }
    assert made["dynamic-int8"]["MatMulInteger"] == 2
    assert (made["static-int8"]["QuantizeLinear"], made["static-int8"]["MatMul"]) == (2, 2)
    assert made["static-int8-operators"]["QLinearMatMul"] == 2
    assert made["int4-weights"]["MatMulNBits"] == 2
    assert made["int4-weights-qdq-16"]["DequantizeLinear"] == 2


def test_scales_are_one_for_each_column_of_a_product(tmp_path: Path) -> None:
    model, _ = quantize(layers(), tmp_path, Quantization("static-int8"))
    graph = onnx.load(model).graph
    sizes = {initializer.name: tuple(initializer.dims) for initializer in graph.initializer}
    (scaled,) = [
        node
        for node in graph.node
        if node.op_type == "DequantizeLinear" and "W1_quantized" in node.input
    ]
    assert sizes[scaled.input[1]] == (32,)
    assert [attribute.i for attribute in scaled.attribute if attribute.name == "axis"] == [1]


@pytest.mark.parametrize("kind", ["dynamic-int8", "static-int8", "int4-weights"])
def test_modules_that_stay_in_float32(tmp_path: Path, kind) -> None:
    model, findings = quantize(layers(), tmp_path, Quantization(kind, ("block.0",)))
    assert codes(findings) == []
    names = {initializer.name for initializer in onnx.load(model).graph.initializer}
    assert "W1" in names
    assert "W2" not in names


def test_a_pattern_that_names_nothing(tmp_path: Path) -> None:
    _, findings = quantize(layers(), tmp_path, Quantization("dynamic-int8", ("blok.0",)))
    assert codes(findings) == ["N206"]
    assert "block.0" in findings[0].message


@pytest.mark.parametrize("kind", ["dynamic-int8", "static-int8", "int4-weights"])
def test_q101_where_all_is_kept(tmp_path: Path, kind) -> None:
    model, findings = quantize(layers(), tmp_path, Quantization(kind, ("block.*",)))
    assert codes(findings) == ["Q101"]
    assert "keep_float32 covers all 2 nodes" in findings[0].message
    (case,) = feeds(count=1)
    np.testing.assert_array_equal(run(model, case), run(tmp_path / "model.onnx", case))


def test_q101_where_no_node_has_weights(tmp_path: Path) -> None:
    model = parsed("g (float[n] x) => (float[n] y) { y = Relu(x) }", {})
    _, findings = quantize(model, tmp_path, Quantization("dynamic-int8"))
    assert codes(findings) == ["Q101"]


def test_q101_convolutions_want_static_quantization(tmp_path: Path) -> None:
    model = parsed(
        "g (float[n,1,4,4] x) => (float[n,2,2,2] y) { y = Conv(x, K) }",
        {"K": np.ones((2, 1, 3, 3), np.float32)},
    )
    _, findings = quantize(model, tmp_path, Quantization("dynamic-int8"))
    assert codes(findings) == ["Q101"]
    assert findings[0].remedy is not None
    assert "static-int8" in findings[0].remedy.text


def test_q103_packed_weights_are_left_alone(tmp_path: Path) -> None:
    for kind in KINDS[0], KINDS[3], KINDS[8]:
        model, findings = quantize(gptq(), tmp_path / kind.quantize, kind, [])
        assert codes(findings) == ["Q103"]
        assert findings[0].place.module == "layers.0.proj"
        assert operators(model)["BitShift"] == 1


@pytest.mark.parametrize("style", ["qdq", "operators"])
def test_convolutions_stay_in_integers_between_each_other(tmp_path: Path, style) -> None:
    rng = np.random.default_rng(3)
    cases = [{"x": rng.normal(size=(4, 3, 8, 8)).astype(np.float32)} for _ in range(4)]
    model, findings = quantize(
        convolutions(), tmp_path, Quantization("static-int8", format=style), cases
    )
    assert codes(findings) == []
    assert signal_to_noise(run(tmp_path / "model.onnx", cases[0]), run(model, cases[0])) > 20
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    fused = operators(tmp_path / "optimized.onnx")
    assert fused["QLinearConv"] == 2
    assert fused["Conv"] == 0
    assert fused["Relu"] == 0


def test_a_residual_stream_is_not_rounded_for_its_neighbors_sake(tmp_path: Path) -> None:
    """The sum reads x itself; the product reads it rounded."""
    rng = np.random.default_rng(3)
    model = parsed(
        "g (float[n,16] x) => (float[n,16] y) { s = Sigmoid(x) p = MatMul(s, W) y = Add(s, p) }",
        {"W": rng.normal(size=(16, 16)).astype(np.float32)},
        {"p": "dense"},
    )
    made, _ = quantize(model, tmp_path, Quantization("static-int8"), feeds(16))
    (total,) = [node for node in onnx.load(made).graph.node if node.op_type == "Add"]
    assert list(total.input) == ["s", "p"]


@pytest.mark.parametrize("kind", ["dynamic-int8", "int4-weights"])
@pytest.mark.parametrize("turned", [0, 1])
def test_a_gemm_and_a_tied_layer_are_quantized_too(tmp_path: Path, kind, turned: int) -> None:
    """Linear layers on matrices are Gemm; a tied output layer's weight is a Transpose of the
    embedding.
    """
    rng = np.random.default_rng(4)
    model = parsed(
        f"""g (int64[n] ids) => (float[n,64] y) {{
            rows = Gather(E, ids)
            hidden = Gemm<transB={turned}>(rows, W, b)
            T = Transpose<perm=[1,0]>(E)
            y = MatMul(hidden, T)
        }}""",
        {
            "E": rng.normal(size=(64, 32)).astype(np.float32),
            "W": rng.normal(size=(32, 32)).astype(np.float32),
            "b": rng.normal(size=32).astype(np.float32),
        },
        {"rows": "embedding", "hidden": "dense", "y": "head"},
    )
    cases = [{"ids": np.arange(64)}]
    made, findings = quantize(model, tmp_path, Quantization(kind), cases)
    assert codes(findings) == []
    assert operators(made)["MatMul"] == operators(made)["Gemm"] == operators(made)["Transpose"] == 0
    assert signal_to_noise(run(tmp_path / "model.onnx", cases[0]), run(made, cases[0])) > 15
    assert modules(made)["hidden"] == "dense"
    assert modules(made)["y"] == "head"


def test_a_gemm_that_is_kept_is_not_quantized_as_the_matmul_it_becomes(tmp_path: Path) -> None:
    model = parsed(
        "g (float[n,8] x) => (float[n,8] y) { h = Gemm(x, A, b) y = MatMul(h, B) }",
        {
            "A": np.eye(8, dtype=np.float32) / 3,
            "b": np.ones(8, np.float32),
            "B": np.eye(8, dtype=np.float32),
        },
        {"h": "first", "y": "second"},
    )
    made, findings = quantize(model, tmp_path, Quantization("dynamic-int8", ("first",)))
    assert codes(findings) == []
    assert operators(made)["MatMulInteger"] == 1
    (weight,) = [one for one in onnx.load(made).graph.initializer if one.name == "A"]
    assert weight.data_type == onnx.TensorProto.FLOAT


def test_the_opset_is_raised_only_where_operators_keep_their_meaning(tmp_path: Path) -> None:
    weights = {"W": np.ones((32, 32), np.float32)}
    text = "g (float[n,32] x) => (float[n,32] y) { p = MatMul(x, W) y = Relu(p) }"
    four_bits = Quantization("int4-weights", format="qdq")
    made, findings = quantize(parsed(text, weights, opset=17), tmp_path / "a", four_bits)
    assert codes(findings) == ["Q107"]
    assert (findings[0].evidence["before"], findings[0].evidence["after"]) == (17, 21)
    assert [opset.version for opset in onnx.load(made).opset_import if opset.domain == ""] == [21]
    made, findings = quantize(
        parsed(text, weights, opset=17), tmp_path / "b", Quantization("int4-weights")
    )
    assert codes(findings) == []
    assert [opset.version for opset in onnx.load(made).opset_import if opset.domain == ""] == [17]
    reduced = "g (float[n,32] x) => (float[n,1] y) { p = MatMul(x, W) y = ReduceMax<axes=[1]>(p) }"
    with pytest.raises(StageFailedError, match=r"ReduceMax changed since .* export\.opset: 21"):
        quantize(parsed(reduced, weights, opset=17), tmp_path / "c", four_bits)


def test_without_cases_there_is_nothing_to_calibrate_with(tmp_path: Path) -> None:
    with pytest.raises(StageFailedError, match="needs cases to calibrate with"):
        quantize(layers(), tmp_path, Quantization("static-int8"), [])


def test_what_the_quantizer_cannot_take_is_said_in_its_words(tmp_path: Path, monkeypatch) -> None:
    from onnxruntime import quantization as theirs

    def fail(*arguments, **options):
        raise RuntimeError("no type for val_3")

    monkeypatch.setattr(theirs, "quantize_dynamic", fail)
    with pytest.raises(
        StageFailedError, match=r"cannot quantize the graph .*RuntimeError: no type for val_3"
    ):
        quantize(layers(), tmp_path, Quantization("dynamic-int8"))


@pytest.mark.slow
@pytest.mark.thorough
def test_the_same_bytes_whatever_the_hash_seed(tmp_path: Path) -> None:
    code = """
import sys
sys.path.append(sys.argv[1])
from pathlib import Path
from small_models import convolutions, feeds, layers, write
from test_quantize import KINDS, name_of
from convkit.worker.precision.quantization.quantize import quantize_file
source = write(layers(), Path("in"), external=True)
for kind in KINDS:
    quantize_file(source, Path(name_of(kind) + ".onnx"), kind, feeds())
"""
    made = []
    for seed in ("1", "2"):
        folder = tmp_path / f"other{seed}"
        folder.mkdir()
        here = str(Path(__file__).parent)
        environment = {**os.environ, "PYTHONHASHSEED": seed, "OMP_NUM_THREADS": seed}
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, here],
            cwd=folder,
            env=environment,
            check=True,
            capture_output=True,
        )
        made.append({path.name: path.read_bytes() for path in sorted(folder.glob("*.onnx*"))})
    assert len(made[0]) == 2 * len(KINDS)
    assert made[0] == made[1]


@pytest.mark.parametrize("per_channel", [True, False])
def test_a_table_that_a_product_shares_is_read_as_it_is(per_channel, tmp_path):
    """A language model's head is often its embedding: its scales are along the head's channels."""
    table = np.random.default_rng(0).normal(size=(12, 16)).astype(np.float32)
    model = parsed(
        "g (int64[n] ids) => (float[n, 12] y) { h = Gather(table, ids) s = Tanh(h)"
        " y = Gemm<transB = 1>(s, table) }",
        {"table": table},
    )
    cases = [{"ids": np.arange(size)} for size in (12, 5)]
    quantization = Quantization("static-int8", per_channel=per_channel, reduce_range=True)
    destination, _ = quantize(model, tmp_path, quantization, cases)
    expected = np.tanh(table) @ table.T
    found = run(destination, {"ids": np.arange(12)})
    assert np.abs(found - expected).max() < 0.03 * np.abs(expected).max()


def test_a_gemm_may_stay_in_float32_beside_another(tmp_path):
    """The shapes of its weight are in the file, as torch's exporter writes them."""
    random = np.random.default_rng(0)
    weights = {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in (("first", (24, 16)), ("second", (9, 24)))
    }
    model = parsed(
        "g (float[n, 16] x) => (float[n, 9] y) <float[24, 16] first, float[9, 24] second>"
        " { h = Gemm<transB = 1>(x, first) y = Gemm<transB = 1>(h, second) }",
        weights,
        {"h": "first", "y": "second"},
    )
    x = random.normal(size=(5, 16)).astype(np.float32)
    expected = x @ weights["first"].T @ weights["second"].T
    for kept in ("first", "second"):
        destination, _ = quantize(
            model, tmp_path, Quantization("dynamic-int8", reduce_range=True).keeping((kept,)), []
        )
        assert operators(destination)["MatMulInteger"] == 1
        found = run(destination, {"x": x})
        assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()
