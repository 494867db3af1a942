"""An IR that is not its graph: which operator differs, proven by putting the right value there."""

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from ir_models import DENSE, SAMPLES, built, dense, reference_of

from convkit.protocol.contract import Contract
from convkit.protocol.json_codec import encode
from convkit.protocol.messages import DiagnoseRequest, Source
from convkit.runtimes.openvino.as_graph import diagnose
from convkit.runtimes.openvino.exposed_tensors import ExposedIR
from convkit.runtimes.openvino.ir import read_graph as read_ir
from convkit.runtimes.openvino.ir import save_ir
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.worker.cause.graphs.runnable_graph import read_graph
from convkit.worker.cause.place.built_against_graph import compare_built
from convkit.worker.graph.node_origins import MODULE_KEY
from convkit.worker.job_context import Context
from convkit.worker.stages.diagnose_built import Release, finding_of

pytest.importorskip("openvino")

FEEDS = {
    name: np.random.default_rng(place).normal(size=(4, 64)).astype(np.float32)
    for place, name in enumerate(("x", "z"))
}


def placed(file: Path) -> Path:
    """Give the graph's nodes their module, as convkit's export does."""
    model = onnx.load(file)
    for node in model.graph.node:
        entry = node.metadata_props.add()
        entry.key, entry.value = MODULE_KEY, "first" if node.name == "node_r" else "second"
    onnx.save(model, file)
    return file


def altered(file: Path) -> Path:
    """Return a copy of a graph whose Relu is an Abs, under the same names."""
    model = onnx.load(file)
    for node in model.graph.node:
        if node.op_type == "Relu":
            node.op_type = "Abs"
    folder = file.parent.parent / "altered"
    folder.mkdir()
    for each in file.parent.iterdir():
        (folder / each.name).write_bytes(each.read_bytes())
    onnx.save(model, folder / file.name)
    return folder / file.name


def test_the_operator_that_differs_is_named_and_proven(tmp_path: Path) -> None:
    graph = placed(dense(tmp_path / "export"))
    folder, _, _ = built(tmp_path, altered(graph))
    request = DiagnoseRequest(
        Source("onnx", path=str(graph)),
        DENSE,
        str(graph.parent),
        str(reference_of(tmp_path, graph, DENSE, SAMPLES)),
        "typical",
        built=str(folder),
        options=encode(OpenVINOOptions()),
    )
    result, (finding,) = diagnose.run(request, Context(tmp_path))
    assert (finding.code, finding.place.node, finding.place.module) == ("N408", "node_r", "first")
    assert finding.evidence["tensors"] == ["r"]
    assert result.causes == 1
    assert result.error is not None
    assert result.error > 0.1
    assert result.remaining is not None
    assert result.remaining < 1e-5, "with the graph's value there the outputs are right"


def test_an_ir_that_is_its_graph_has_nothing_to_tell(tmp_path: Path) -> None:
    graph = dense(tmp_path / "export")
    folder, _, _ = built(tmp_path, graph)
    model = ExposedIR(folder / "model.xml", OpenVINOOptions())
    assert {"a", "r", "b", "y", "x", "z"} <= set(model.tensors())
    assert compare_built(read_graph(graph), model, FEEDS) is None


class Merging:
    """Stands in for a runtime that merges `r` with what follows, wrongly, unless it is exposed."""

    def __init__(self, graph: Path) -> None:
        self._graph = read_graph(graph)

    def tensors(self) -> Collection[str]:
        return ("a", "r", "b", "y")

    def run(
        self, feeds: Mapping[str, np.ndarray], exposed: Sequence[str], put: Mapping[str, np.ndarray]
    ) -> Mapping[str, np.ndarray]:
        assert not put
        found = self._graph.run([*dict.fromkeys([*exposed, "y"])], dict(feeds))
        return found if "r" in exposed else found | {"y": found["y"] * 2}


def test_with_a_mocked_runtime_a_wrong_fusion_is_told_from_a_wrong_operator(tmp_path: Path) -> None:
    graph = dense(tmp_path / "export")
    found = compare_built(read_graph(graph), Merging(graph), FEEDS)
    assert found is not None
    assert (found.kind, found.names) == ("fused", ("r",))
    assert found.before > 0.5
    assert found.after < 1e-6
    nodes = {name: node for node in read_graph(graph).nodes for name in node.output}
    finding = finding_of(found, nodes, Release("OpenVINO", "tools.openvino"), "typical")
    assert (finding.code, finding.evidence["owner"]) == ("N401", "fusion")
    assert finding.remedy is not None
    assert finding.remedy.proven, "exposing the tensor is what was tried"
    assert "Return this line's result from the model as well" in finding.remedy.text


WRAPPING = """
    <ir_version: 8, opset_import: ["" : 17]>
    agraph (int64[4] x) => (float[4, 2] y) <int64 factor = {2654435761}, int64 rows = {97},
        float[97, 2] table> {
        product = Mul(x, factor)
        row = Mod(product, rows)
        y = Gather(table, row)
    }
"""


def test_whole_numbers_beyond_int32_are_named_where_they_arise(tmp_path: Path) -> None:
    table = np.arange(194, dtype=np.float32).reshape(97, 2)
    model = onnx.parser.parse_model(WRAPPING)
    model.graph.initializer.append(onnx.numpy_helper.from_array(table, "table"))
    onnx.save(model, tmp_path / "model.onnx")
    save_ir(
        read_ir(tmp_path / "model.onnx"), tmp_path / "model.xml", Contract((), (), ()), "float32"
    )
    built_model = ExposedIR(tmp_path / "model.xml", OpenVINOOptions())
    graph = read_graph(tmp_path / "model.onnx")
    found = compare_built(graph, built_model, {"x": np.array([3, 1_660_000, 7, 1_234_567])})
    assert found is not None
    assert (found.kind, found.names[0]) == ("computed", "product")
    assert found.beyond == 1_660_000 * 2654435761


@pytest.mark.thorough
def test_the_first_of_many_numbers_beyond_int32_is_named(tmp_path: Path) -> None:
    steps = "\n".join(f"s{n + 1} = Sub(s{n}, one)" for n in range(12))
    model = onnx.parser.parse_model(f"""
        <ir_version: 8, opset_import: ["" : 17]>
        agraph (int64[4] x) => (int64[4] s12) <int64 factor = {{2654435761}}, int64 one = {{1}}> {{
            s0 = Mul(x, factor)
            {steps}
        }}
    """)
    onnx.save(model, tmp_path / "model.onnx")
    save_ir(
        read_ir(tmp_path / "model.onnx"), tmp_path / "model.xml", Contract((), (), ()), "float32"
    )
    found = compare_built(
        read_graph(tmp_path / "model.onnx"),
        ExposedIR(tmp_path / "model.xml", OpenVINOOptions()),
        {"x": np.array([3, 1_660_000, 7, 1_234_567])},
    )
    assert found is not None
    assert (found.kind, found.names) == ("wide", ("s0",))
    assert found.beyond == 1_660_000 * 2654435761
