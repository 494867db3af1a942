"""A simulation belongs to no processor: the same bytes with AVX512, with AVX2 and FMA, and with SSE
alone.
"""

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime
import pytest
import simulated_graphs
from other_processors import PROCESSORS, emulated, printed_on

from convkit.worker.graph.graph_session import open_graph
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.simulation import arithmetic
from convkit.worker.precision.simulation.arithmetic import with_defined_arithmetic

SCRIPT = Path(simulated_graphs.__file__)


@pytest.fixture(scope="module")
def native() -> dict[str, str]:
    return simulated_graphs.all_digests()


def test_every_operator_is_covered() -> None:
    used = {
        node.op_type
        for name in simulated_graphs.GRAPHS
        for node in simulated_graphs.parsed(name).graph
    }
    # Of RMSNormalization in onnxruntime's own domain; as MatMul; functions of few models.
    rest = {"SimplifiedLayerNormalization", "DFT", "GridSample", "CumProd", "ReduceLogSum"}
    rest |= {"MeanVarianceNormalization", "RotaryEmbedding", "SwiGLU", "Swish"}
    assert used | rest >= arithmetic._WIDE | arithmetic._DEFINED_BY_OTHERS


@pytest.mark.parametrize("name", list(simulated_graphs.GRAPHS))
def test_it_computes_what_onnxruntime_computes(name: str, tmp_path: Path) -> None:
    """Within what rounding in float32 may change, and where onnxruntime keeps denormal numbers."""
    model = simulated_graphs.parsed(name)
    ir.save(model, tmp_path / "model.onnx")
    rng = np.random.default_rng(simulated_graphs._RNG_SEED + 1)
    shape = simulated_graphs._SIZES[simulated_graphs.GRAPHS[name][1]]
    x = (rng.normal(size=shape) * 2).astype(np.float32)
    settings = onnxruntime.SessionOptions()
    settings.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        str(tmp_path / "model.onnx"), settings, providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(["y"], {"x": x})
    found = simulated_graphs.simulated(name, "float32")
    assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
    scale = np.abs(expected).max()
    assert np.abs(found - expected).max() <= 3e-6 * scale
    assert scale > 0


@emulated
@pytest.mark.parametrize("processor", PROCESSORS)
def test_another_processor_gives_the_same(native: dict[str, str], processor: str) -> None:
    found_there = printed_on(processor, SCRIPT)
    assert [name for name, own in native.items() if found_there[name] != own] == []


@pytest.mark.parametrize(("opset", "mode"), [(16, "bilinear"), (20, "linear")])
def test_each_opset_of_an_operator_has_a_kernel(opset: int, mode: str, tmp_path: Path) -> None:
    text = (
        f'<ir_version: 8, opset_import: ["": {opset}]> g (float[1, 1, 4, 4] x, float[1, 2, 2, 2] p)'
        f' => (float[1, 1, 2, 2] y) {{ y = GridSample <mode = "{mode}"> (x, p) }}'
    )
    ir.save(with_defined_arithmetic(prepare(ir.from_onnx_text(text))), tmp_path / "model.onnx")
    x = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)
    feeds = {"x": x, "p": np.zeros((1, 2, 2, 2), np.float32)}
    found = open_graph(tmp_path / "model.onnx").run(feeds)["y"]
    assert found.ravel().tolist() == [7.5] * 4


def test_what_runs_differ_in_shows_without_it(tmp_path: Path) -> None:
    """The order of a sum changes its last bits in float32, and none of what is defined here."""
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=size).astype(np.float32) for size in ((64, 512), (512, 64)))
    order = rng.permutation(512)
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[N, K] x, float[K, M] w)'
        " => (float[N, M] y) { y = MatMul(x, w) }"
    )
    model = prepare(ir.from_onnx_text(text))
    for name, each in (("plain", model), ("defined", with_defined_arithmetic(model))):
        ir.save(each, tmp_path / f"{name}.onnx")
    plain, defined = (open_graph(tmp_path / f"{name}.onnx") for name in ("plain", "defined"))
    straight, mixed = {"x": x, "w": w}, {"x": x[:, order], "w": w[order]}
    assert not np.array_equal(plain.run(straight)["y"], plain.run(mixed)["y"])
    np.testing.assert_array_equal(defined.run(straight)["y"], defined.run(mixed)["y"])


def test_overflow_is_that_of_float32_and_denormal_numbers_are_kept(tmp_path: Path) -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[N, 3] x) => (float[N, 1] y)'
        " <float[3, 1] w = {1, 1, 1}> { y = MatMul(x, w) }"
    )
    ir.save(with_defined_arithmetic(prepare(ir.from_onnx_text(text))), tmp_path / "model.onnx")
    x = np.array([[3e38, 3e38, 0], [1e-42, 2e-42, 0], [np.nan, 0, 0]], np.float32)
    found = open_graph(tmp_path / "model.onnx").run({"x": x})["y"].ravel()
    assert found[0] == np.inf
    assert found[1] == np.float32(3e-42)
    assert np.isnan(found[2])


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-30, 40.0])
def test_erf_at_its_ends(tmp_path: Path, value: float) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[N] x) => (float[N] y) { y = Erf(x) }'
    ir.save(with_defined_arithmetic(prepare(ir.from_onnx_text(text))), tmp_path / "model.onnx")
    (found,) = open_graph(tmp_path / "model.onnx").run({"x": np.array([value], np.float32)})["y"]
    expected = {np.inf: 1.0, -np.inf: -1.0, 40.0: 1.0}.get(value, value)
    assert np.isclose(found, expected, rtol=0, atol=1e-12, equal_nan=True)
