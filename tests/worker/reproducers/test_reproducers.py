"""Scripts that show a fault: the smallest piece is found, a right model has none, and every script
is complete by itself.
"""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import onnx
import onnx_ir
import pytest
import torch

from convkit.runtimes.onnxruntime import reproducer as onnxruntime_scripts
from convkit.worker.cause.graphs.runnable_graph import Graph, make_graph
from convkit.worker.cause.recording.torch_recording import record
from convkit.worker.reproducers.graph_piece import is_right, refused_piece, wrong_piece
from convkit.worker.reproducers.module_piece import wrong_module
from convkit.worker.reproducers.script_text import SCRIPT, Arrays, outcome, shows_difference
from convkit.worker.stages.reproduce import node_by_node

_VERSIONS = {"onnxruntime": "1.31.1", "onnx": "1.23.2", "numpy": "2.4.6", "torch": "2.13.0"}
# A runtime that multiplies by three where a graph says two.
_TRIPLES = SimpleNamespace(
    TITLE="triples",
    PACKAGES=("onnxruntime", "onnx"),
    IMPORTS=("import onnxruntime",),
    CONVERT=None,
    RUN="""\
def run(model, inputs):
    for constant in model.graph.initializer:
        if constant.name == "two":
            constant.CopyFrom(onnx.numpy_helper.from_array(numpy.float32(3), "two"))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs)))
""",
)


# A runtime that does not load a Clip behind a Relu.
_REFUSES = SimpleNamespace(
    TITLE="refuses",
    PACKAGES=("onnx",),
    IMPORTS=(),
    CONVERT=None,
    RUN="""\
def run(model, inputs):
    operators = [node.op_type for node in model.graph.node]
    if "Relu" in operators and "Clip" in operators:
        raise ValueError("fusing Relu into Clip: unexpected element type")
    if operators == ["Add"]:
        raise ValueError("another refusal, which has nothing to do with the first one")
    return dict.fromkeys((output.name for output in model.graph.output), numpy.ones((2, 4)))
""",
)


def _graph(text: str) -> Graph:
    header = '<ir_version: 10, opset_import: ["" : 18]>\n'
    return make_graph(onnx_ir.from_proto(onnx.parser.parse_model(header + text)))


_CHAIN = """main (float[2, 3] x) => (float[2, 3] y) <float two = {2.0}, float one = {1.0}> {
    a = Add (x, one)
    b = Mul (a, two)
    c = Relu (b)
    y = Add (c, one)
}"""


def _values(graph: Graph) -> dict[str, np.ndarray]:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    names = [name for node in graph.nodes for name in node.output]
    return {"x": x, **graph.run(names, {"x": x})}


def test_the_piece_is_the_node_that_is_wrong(tmp_path: Path) -> None:
    graph = _graph(_CHAIN)
    values = _values(graph)
    piece = wrong_piece(graph, values, ["y"], _TRIPLES, _VERSIONS, tmp_path)
    assert piece is not None
    assert [node.op_type for node in piece] == ["Mul"]
    assert is_right(piece, tmp_path, values) is True
    text = (tmp_path / SCRIPT).read_text()
    assert "convkit" not in text
    assert text.count("\n") < 40
    assert "pip install onnxruntime==1.31.1 onnx==1.23.2 numpy==2.4.6" in text


def test_a_script_shows_its_fault_in_a_process_of_its_own(tmp_path: Path) -> None:
    graph = _graph(_CHAIN)
    assert wrong_piece(graph, _values(graph), ["b"], _TRIPLES, _VERSIONS, tmp_path) is not None
    command = [sys.executable, "-I", str(tmp_path / SCRIPT)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert ended.returncode == 1
    assert "Not equal to tolerance" in ended.stderr


def test_a_right_model_has_no_piece(tmp_path: Path) -> None:
    graph = _graph(_CHAIN)
    assert (
        wrong_piece(graph, _values(graph), ["y"], onnxruntime_scripts, _VERSIONS, tmp_path) is None
    )


def test_a_graph_that_is_wrong_itself_is_not_the_runtimes_fault(tmp_path: Path) -> None:
    graph = _graph(_CHAIN)
    values = _values(graph)
    values["b"] = values["b"] + 1  # what an original computes
    piece = wrong_piece(graph, values, ["b"], onnxruntime_scripts, _VERSIONS, tmp_path)
    assert piece is not None
    assert is_right(piece, tmp_path, values) is False


_REFUSED = """main (double[2, 4] x) => (double[2, 4] y)
<double low = {-1.0}, double high = {0.5}, double two = {2.0}> {
    m = Mul (x, two)
    r = Relu (m)
    c = Clip (r, low, high)
    y = Add (c, two)
}"""


def test_the_piece_of_a_refusal_has_the_nodes_that_matter(tmp_path: Path) -> None:
    graph = _graph(_REFUSED)
    values = _values(_graph(_CHAIN)) | {name: np.ones((2, 4)) for name in ("x", "m", "r", "c", "y")}
    piece = refused_piece(graph, values, _REFUSES, _VERSIONS, tmp_path)
    assert piece is not None
    assert [node.op_type for node in piece] == ["Relu", "Clip"]
    assert "relu" in str(outcome(tmp_path / SCRIPT)).lower()


def test_what_a_refused_node_does_not_need_is_computed() -> None:
    text = """<ir_version: 10, opset_import: ["" : 18, "my" : 1]>
    main (float[2] x) => (float[2] y) {
        a = Relu (x)
        b = my.Unknown (a)
        c = Neg (a)
        y = Add (b, c)
    }"""
    graph = make_graph(onnx_ir.from_proto(onnx.parser.parse_model(text)))
    known = node_by_node(graph, {"x": np.array([-1, 2], np.float32)})
    assert set(known) == {"x", "a", "c"}
    assert known["c"].tolist() == [-0.0, -2.0]


def test_a_graph_that_loads_is_not_refused(tmp_path: Path) -> None:
    graph = _graph(_CHAIN)
    assert refused_piece(graph, _values(graph), onnxruntime_scripts, _VERSIONS, tmp_path) is None


class _Halved(torch.nn.Module):
    def forward(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.atan2(torch.relu(y), x) * 2


def test_an_operation_that_an_exporter_gets_wrong_is_a_module(tmp_path: Path) -> None:
    y, x = torch.tensor([-1.0, 1.0, -2.0]), torch.tensor([-1.0, 2.0, -3.0])
    recording = record(_Halved(), {"y": y, "x": x}, ("z",))
    scripts = (onnxruntime_scripts, _VERSIONS, 18, tmp_path)
    near = torch.atan2(torch.relu(y), x).numpy()
    names = wrong_module(recording, None, near, *scripts)
    assert names == ["atan2"]  # y = 0 and x < 0 give -pi for pi
    assert "torch.ops.aten.atan2.default(x0, x1)" in (tmp_path / SCRIPT).read_text()
    right = wrong_module(recording, None, torch.relu(y).numpy(), *scripts)
    assert right is None


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1.1, np.nan], [-np.inf, 1e-30]], np.float32),
        np.array([2**62 + 1, -3], np.int64),
        np.array(True),
        np.array(0.1, np.float64),
    ],
)
def test_arrays_in_a_script_are_exact(array: np.ndarray, tmp_path: Path) -> None:
    (line,) = Arrays({"x": array}, None).lines()
    found: dict[str, dict[str, np.ndarray]] = {}
    exec(line, {"numpy": np}, found)
    assert found["inputs"]["x"].dtype == array.dtype
    np.testing.assert_array_equal(found["inputs"]["x"], array)
    Arrays({"x": array}, None).save(tmp_path)
    assert not list(tmp_path.iterdir())  # all of it is in the text


@pytest.mark.parametrize(
    ("off", "shown"), [(0.0, False), (1e-6, False), (0.1, True), (np.nan, True)]
)
def test_a_check_fails_for_what_is_off(off: float, shown: bool, tmp_path: Path) -> None:
    expected = np.linspace(-1, 1, 50, dtype=np.float32)
    arrays = Arrays({}, expected)
    arrays.save(tmp_path)
    lines = ["import numpy", "from pathlib import Path", *arrays.lines()]
    lines += [f"found = expected + numpy.array({off}, 'float32')".replace("nan", "numpy.nan")]
    (tmp_path / SCRIPT).write_text("\n".join([*lines, arrays.check()]))
    assert shows_difference(tmp_path / SCRIPT) is shown


def test_a_script_that_cannot_run_shows_nothing(tmp_path: Path) -> None:
    (tmp_path / SCRIPT).write_text("import no_such_module")
    assert not shows_difference(tmp_path / SCRIPT)
