"""Differences of OpenVINO that a tensor's root mean square hides: of a few roundings, in small
numbers that matter later, in the type that it computes in; and what was tried against them.
"""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest

from convkit.protocol.findings.finding import Finding
from convkit.runtimes.openvino.as_graph.diagnose import computed
from convkit.runtimes.openvino.exposed_tensors import ExposedIR
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.worker.cause.graphs.float64_graph import run_in_float64
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.place.built_against_graph import compare_built
from convkit.worker.stages.diagnose_built import Release, finding_of

openvino = pytest.importorskip("openvino")

LONG = (
    "(float[1, 2048, 2048] x) => (float[1] y) <int64[2] axes = {1, 2}>"
    " { y = ReduceSum<keepdims=0>(x, axes) }"
)
SMALL = "(float[1, 6] x) => (float[1, 6] y) { e = Erf(x) y = Log(e) }"
NUMBERS = np.array([[3e-12, 9e-20, 7e-8, 0.4, 1e-3, 1e-5]], np.float32)
SHAPED = "(double[1, 3] x) => (double[3] y) <int64[1] flat = {-1}> { y = Reshape(x, flat) }"
WINDOW = (
    "(double[1, 1, 4, 4] x) => (double[1, 1, 2, 2] y)"
    " <double[1, 1, 3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9.1}> { y = Conv(x, w) }"
)


def explained(folder: Path, lines: str, x: np.ndarray) -> Finding | None:
    """Return what is said of a graph's IR, whose original is the graph in float64."""
    text = f'<ir_version: 8, opset_import: ["" : 18]> g {lines}'
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    onnx.save(model, folder / "model.onnx")
    ir = openvino.convert_model(folder / "model.onnx")
    openvino.save_model(ir, folder / "model.xml", compress_to_fp16=False)
    graph = make_graph(onnx_ir.from_proto(model))
    exact = run_in_float64(graph, ["y"], {"x": x})["y"].astype(x.dtype)
    exposed = ExposedIR(folder / "model.xml", OpenVINOOptions())
    found = compare_built(graph, exposed, {"x": x}, {"y": exact}, computed)
    if found is None:
        return None
    nodes = {name: node for node in graph.nodes for name in node.output}
    return finding_of(found, nodes, Release("OpenVINO", "tools.openvino"), "example")


def advice(finding: Finding | None) -> str:
    assert finding is not None
    assert finding.remedy is not None
    assert finding.remedy.proven
    return finding.remedy.text


def test_a_sum_of_many_values_has_a_form_that_openvino_computes_right(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((1, 2048, 2048), np.float32)
    finding = explained(tmp_path, LONG, x)
    assert finding is not None
    assert (finding.code, finding.place.tensor, finding.evidence["owner"]) == (
        "N408",
        "y",
        "kernel",
    )
    assert "of 4194304 float32 values, rounding at each addition adds up" in finding.message
    assert "x.sum(2, keepdim=True).sum((1, 2))" in advice(finding)


@pytest.mark.thorough
def test_a_difference_begins_at_the_value_that_only_looks_right(tmp_path: Path) -> None:
    finding = explained(tmp_path, SMALL, NUMBERS)
    assert finding is not None
    assert finding.place.tensor == "e", "Log is right with the right Erf"
    # No other form makes infinity right, however infinite the error was before.
    assert advice(finding).startswith("Serve this model with onnxruntime")
    assert "float64" not in advice(finding)


def test_what_is_right_up_to_rounding_has_nothing_to_tell(tmp_path: Path) -> None:
    assert explained(tmp_path, SMALL, np.linspace(0.1, 1, 6, dtype=np.float32)[None]) is None


@pytest.mark.parametrize("lines", [SHAPED, WINDOW], ids=["reshape", "without onnxruntime"])
def test_float64_is_computed_in_float32(tmp_path: Path, lines: str) -> None:
    shape = (1, 3) if lines is SHAPED else (1, 1, 4, 4)
    x = np.random.default_rng(0).normal(size=shape) + 1e6
    finding = explained(tmp_path, lines, x)
    assert finding is not None
    assert "in float32, which keeps 24 of float64's 53 bits" in finding.message
    assert finding.evidence["owner"] == "kernel"
    assert finding.remedy is not None
    # What onnxruntime does not run is no remedy.
    assert finding.remedy.proven == (lines is SHAPED)


def test_an_infinity_that_becomes_a_number_is_named(tmp_path: Path) -> None:
    lines = "(double[1, 3] x) => (double[1, 3] y) { a = Abs(x) y = Round(a) }"
    finding = explained(tmp_path, lines, np.array([[np.inf, -np.inf, 1.5]]))
    assert finding is not None
    assert finding.place.tensor == "a"
    assert "returns float32's largest number in its place" in finding.message
    assert advice(finding).startswith("Serve this model with onnxruntime")
