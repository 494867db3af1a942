"""Whole numbers that OpenVINO computes in another width: how, and a form that OpenVINO computes
right in the whole graph.
"""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import pytest

from convkit.runtimes.openvino.as_graph.diagnose import computed
from convkit.runtimes.openvino.exposed_tensors import ExposedIR
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.cause.place.built_against_graph import compare_built
from convkit.worker.cause.place.built_difference import BuiltDifference
from convkit.worker.stages.diagnose_built import Release, finding_of

openvino = pytest.importorskip("openvino")


def difference(folder: Path, kind: str, lines: str, x: np.ndarray) -> BuiltDifference:
    text = f'<ir_version: 8, opset_import: ["" : 18]> g ({kind}[2, 4] x) => ({kind} y) {lines}'
    model = onnx.shape_inference.infer_shapes(onnx.parser.parse_model(text))
    onnx.save(model, folder / "model.onnx")
    openvino.save_model(openvino.convert_model(folder / "model.onnx"), folder / "model.xml")
    graph = make_graph(onnx_ir.from_proto(model))
    exposed = ExposedIR(folder / "model.xml", OpenVINOOptions())
    found = compare_built(graph, exposed, {"x": x}, None, computed)
    assert found is not None
    return found


def test_bytes_that_do_not_wrap_around_are_masked_in_int32(tmp_path: Path) -> None:
    lines = "<uint8 c = {31}> { a = Mul(x, c) b = Add(a, x) y = BitwiseXor(b, c) }"
    x = np.arange(40, 240, 25, np.uint8).reshape(2, 4)
    found = difference(tmp_path, "uint8", lines, x)
    assert (found.kind, found.names, found.repaired, found.places) == ("computed", ("a", "b"), 0, 2)
    node = onnx.helper.make_node("Mul", ["x", "c"], ["a"], name="m")
    finding = finding_of(found, {"a": node}, Release("OpenVINO", "tools.openvino"), "typical")
    assert "without wrapping around: beyond 0 to 255" in finding.message
    assert finding.evidence["owner"] == "kernel"
    assert finding.remedy is not None
    assert finding.remedy.proven
    assert "((x.int() * z.int()) & 255).to(torch.uint8)" in finding.remedy.text
    assert finding.remedy.text.endswith("at 2 nodes of this kind, the outputs are off by 0.")


def test_a_product_beyond_int32_has_a_remainder_of_remainders(tmp_path: Path) -> None:
    lines = "<int64 c = {2654435761}, int64 m = {1000}> { a = Mul(x, c) y = Mod(a, m) }"
    x = np.arange(70_000, 70_008).reshape(2, 4)
    found = difference(tmp_path, "int64", lines, x)
    assert (found.beyond, found.repaired) == (70_007 * 2654435761, 0)


def test_the_truth_of_nan_is_a_comparison_beside_nodes_that_have_no_form(tmp_path: Path) -> None:
    lines = """<float zero = {0}> { t = Cast<to=9>(x) a = Cast<to=1>(t) g = Greater(x, zero)
        b = Cast<to=1>(g) c = Mul(b, zero) y = Add(a, c) }"""
    x = np.array([[1, np.nan, 0, 3], [0, -1, np.nan, 1]], np.float32)
    found = difference(tmp_path, "float", lines, x)
    assert found.names[0] == "t"
    assert (found.instead, found.repaired) == ("Write this line as y = x != 0", 0)


def test_numbers_beyond_every_form_have_none(tmp_path: Path) -> None:
    lines = "<int64 c = {2654435761}> { y = Mul(x, c) }"
    found = difference(tmp_path, "int64", lines, np.arange(70_000, 70_008).reshape(2, 4))
    assert (found.instead, found.repaired) == (None, None)
