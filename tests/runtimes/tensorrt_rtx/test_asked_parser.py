"""What TensorRT-RTX's parser says of ONNX graphs, asked for real: each verdict with its node, and
nothing else.
"""

import gc
import weakref
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest

from convkit.runtimes.tensorrt.asked_parser import parse
from convkit.runtimes.tensorrt.library import MessageLog, make_logger, rtx_library
from convkit.runtimes.tensorrt.predicted_support import predicted_by
from convkit.worker.graph.node_origins import MODULE_KEY, SOURCE_KEY

pytest.importorskip("tensorrt_rtx_bindings", reason="TensorRT-RTX is not installed")


class Graph(NamedTuple):
    """A graph in ONNX's text syntax: its signature and its nodes."""

    given: str
    returned: str
    nodes: str
    opset: int = 18
    domains: str = ""

    def save(self, folder: Path) -> Path:
        text = (
            f'<ir_version: 10, opset_import: ["": {self.opset}{self.domains}]>'
            f" graph ({self.given}) => ({self.returned}) {{{self.nodes}}}"
        )
        model = onnx.parser.parse_model(text)
        for number, node in enumerate(model.graph.node):
            for key, value in ((MODULE_KEY, f"net.{number}"), (SOURCE_KEY, f"net.py:{number}")):
                node.metadata_props.add(key=key, value=value)
        onnx.save(model, folder / "model.onnx")
        return folder / "model.onnx"


ROWS = "float[N, 4] x"
ACCEPTED = {
    "cast from uint8": Graph("uint8[N, 4] x", "float[N, 4] y", "[n] y = Cast <to = 1> (x)"),
    "modulo": Graph(ROWS, "float[N, 4] y", "[n] y = Mod <fmod = 1> (x, x)"),
    "diagonal": Graph(
        "float[N, 4, 4] x", "float[N, 4] y", '[n] y = Einsum <equation = "bii->bi"> (x)'
    ),
    "the last of equals": Graph(
        ROWS, "int64[N, 1] y", "[n] y = ArgMax <axis = 1, select_last_index = 1> (x)"
    ),
    "an opset newer than the documentation": Graph(
        ROWS, "float[N, 4] y", "[n] y = Relu(x)", opset=25
    ),
    "an opset older than the documentation": Graph(
        ROWS, "float[N, 4] y", "[n] y = Relu(x)", opset=7
    ),
    "gelu": Graph(ROWS, "float[N, 4] y", "[n] y = Gelu(x)", opset=20),
    "int8 sums": Graph("int8[N, 4] x", "int8[N, 4] y", "[n] y = Add(x, x)"),
}
# Graphs and what is refused in each: (node or input, operator).
REFUSED = {
    "nonzero": (
        Graph(ROWS, "int64[A, B] y", "[a] r = Relu(x) [b] y = NonZero(r)"),
        [("b", "NonZero")],
    ),
    "determinant": (Graph("float[N, 4, 4] x", "float[N] y", "[d] y = Det(x)"), [("d", "Det")]),
    "bits": (Graph("int32[N] x", "int32[N] y", "[b] y = BitwiseAnd(x, x)"), [("b", "BitwiseAnd")]),
    "strings": (Graph("string[N] x", "string[N] y", "[s] y = Identity(x)"), [("x", "input")]),
    "short integers": (
        Graph("int16[N] x", "float[N] y", "[c] y = Cast <to = 1> (x)"),
        [("x", "input")],
    ),
    "ranks over 8": (
        Graph(
            "float[1, 1, 1, 1, 1, 1, 1, 1, 4] x",
            "float[1, 1, 1, 1, 1, 1, 1, 1, 4] y",
            "[r] y = Relu(x)",
        ),
        [("x", "input")],
    ),
    "spectrum": (
        Graph("float[N, 8, 1] x, int64 axis", "float[N, 8, 2] y", "[f] y = DFT(x, , axis)", 20),
        [("f", "DFT")],
    ),
    "unsigned sums": (Graph("uint8[N, 4] x", "uint8[N, 4] y", "[u] y = Add(x, x)"), [("u", "Add")]),
    "an operator of its own": (
        Graph(ROWS, "float[N, 4] y", "[o] y = my.Own(x)", domains=', "my": 1'),
        [("o", "my.Own")],
    ),
    "a type in between": (
        Graph(ROWS, "float[N, 4] y", "[c] i = Cast <to = 12> (x) [d] y = Cast <to = 1> (i)"),
        [("c", "Cast")],
    ),
    "the second branch": (
        Graph(
            "float[N, 4, 4] x, bool c",
            "float[N, 4, 4] y",
            "[i] y = If (c) <then_branch = t () => (float[N, 4, 4] a) {[m] a = Relu(x)},"
            " else_branch = e () => (float[N, 4, 4] b) {[d] f = Det(x) [v] b = Exp(x)}>",
        ),
        [("d", "Det")],
    ),
    # The parser names the node itself, which the main graph does not have.
    "a plugin in a branch": (
        Graph(
            "float[N, 4] x, bool c",
            "float[N, 4] y",
            "[r] p = Relu(x) [i] y = If (c) <then_branch = t () => (float[N, 4] a) {[z] q ="
            " NonZero(p) [s] k = Shape(q) [f] v = Cast <to = 1> (k) [m] w = ReduceMax"
            " <keepdims = 0> (v) [a] a = Mul(p, w)}, else_branch = e () => (float[N, 4] b)"
            " {[v] b = Exp(p)}>",
        ),
        [("z", "NonZero")],
    ),
    "pooled places": (
        Graph(
            "float[1, 1, 4, 4] x",
            "float[1, 1, 2, 2] y, int64[1, 1, 2, 2] i",
            "[p] y, i = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)",
        ),
        [("p", "MaxPool")],
    ),
    # The parser names no node for this one.
    "a reduction": (
        Graph(
            "float[N, 4] x, int64[N, 4] i",
            "float[N, 4] y",
            '[a] r = Relu(x) [s] z = ScatterElements <reduction = "max", axis = 1> (r, i, r)'
            " [b] y = Exp(z)",
        ),
        [("s", "ScatterElements")],
    ),
    # The parser stops at NonZero, and says nothing of what follows.
    "two, of which it names one": (
        Graph("float[N, 4, 4] x", "int64[A, B] y, float[N] z", "[a] y = NonZero(x) [b] z = Det(x)"),
        [("a", "NonZero"), ("b", "Det")],
    ),
    "several kinds at once": (
        Graph(
            "float[N, 4, 4] x, int32[N] k",
            "float[N] y, int32[N] m, float[N] q",
            "[a] y = Det(x) [b] m = BitwiseAnd(k, k) [c] q = Det(x)",
        ),
        [("a", "Det"), ("b", "BitwiseAnd"), ("c", "Det")],
    ),
}


def constants(kind: str) -> str:
    return (
        f'<ir_version: 10, opset_import: ["": 18]> graph (int32[N] x) => (int32[N] y, float[M] z)'
        f" <{kind} bits = {{1}}, float[2] more = {{1, 2}}>"
        f' {{[a] b = BitShift <direction = "RIGHT"> (bits, bits)'
        f" [c] c = Cast <to = 6> (b) [d] y = Add(x, c) [e] z = Det(more)}}"
    )


def test_the_node_that_reads_a_refused_constant_is_named(tmp_path: Path) -> None:
    onnx.save(onnx.parser.parse_model(constants("uint32")), tmp_path / "model.onnx")
    library = rtx_library()
    assert library is not None
    refused = parse(library, tmp_path / "model.onnx", MessageLog()).refused
    assert ("a", "bits") in {(each.origin.node, each.tensor) for each in refused}
    assert all(each.origin.node for each in refused)


def test_the_node_that_reads_a_text_is_named(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 19]> graph (string[N] x) => (float[N] y)'
        ' <string[1] text = {"a"}> {[e] q = Equal(x, text) [c] y = Cast <to = 1> (q)}'
    )
    onnx.save(model, tmp_path / "model.onnx")
    library = rtx_library()
    assert library is not None
    refused = parse(library, tmp_path / "model.onnx", MessageLog()).refused
    assert [(each.origin.node, each.tensor) for each in refused] == [("", "x"), ("e", "text")]


def asked(graph: Graph, folder: Path):
    library = rtx_library()
    assert library is not None
    return parse(library, graph.save(folder), MessageLog())


@pytest.mark.parametrize("name", ACCEPTED)
def test_what_it_accepts_is_left_alone(name: str, tmp_path: Path) -> None:
    parsed = asked(ACCEPTED[name], tmp_path)
    assert (parsed.refused, parsed.retyped) == ((), ())
    assert parsed.network.num_layers > 0
    assert [spec.name for spec in parsed.contract().inputs] == ["x"]


@pytest.mark.parametrize("name", REFUSED)
def test_each_refusal_is_named_once(name: str, tmp_path: Path) -> None:
    graph, expected = REFUSED[name]
    parsed = asked(graph, tmp_path)
    assert [
        (each.tensor or each.origin.node, each.origin.operator) for each in parsed.refused
    ] == expected
    assert all(each.message for each in parsed.refused)


def test_module_and_line_are_those_of_the_node(tmp_path: Path) -> None:
    graph = Graph("float[N, 4, 4] x", "float[N] y", "[a] r = Relu(x) [b] y = Det(r)")
    (refused,) = asked(graph, tmp_path).refused
    assert (refused.origin.module, refused.origin.source) == ("net.1", "net.py:1")
    assert refused.origin.types == "float32 -> float32"


@pytest.mark.parametrize(
    ("given", "nodes", "planned", "built", "where"),
    [
        ("double[N, 4] x", "[a] r = Exp(x) [b] y = Cast <to = 1> (r)", "float64", "float32", "x"),
        (ROWS, "[a] r = Cast <to = 11> (x) [b] y = Cast <to = 1> (r)", "float64", "float32", "r"),
    ],
)
def test_types_that_it_changes_without_a_word_are_found(
    given: str, nodes: str, planned: str, built: str, where: str, tmp_path: Path
) -> None:
    parsed = asked(Graph(given, "float[N, 4] y", nodes), tmp_path)
    first = parsed.retyped[0]
    assert parsed.accepted
    assert (first.planned, first.built, first.tensor) == (planned, built, where)


def test_changed_types_are_found_beside_refused_nodes(tmp_path: Path) -> None:
    graph = Graph(
        "float[N, 4, 4] x",
        "float[N] y",
        "[a] d = Cast <to = 11> (x) [b] f = Cast <to = 1> (d) [c] y = Det(f)",
    )
    parsed = asked(graph, tmp_path)
    assert [each.origin.node for each in parsed.refused] == ["c"]
    assert [(each.tensor, each.built) for each in parsed.retyped] == [("d", "float32")]


@pytest.mark.parametrize(
    ("kind", "point", "code"),
    [("int8", 0, None), ("int8", 3, "T105"), ("uint8", 0, "T107"), ("uint8", 128, "T105")],
)
def test_zero_points_are_the_parsers_to_judge(
    kind: str, point: int, code: str | None, tmp_path: Path
) -> None:
    """uint8 with a zero point of 0 is built as int8, which clips half of the range."""
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> graph (float[N, 4] x) => (float[N, 4] y)'
        f" <float scale = {{0.1}}, {kind} zero = {{{point}}}>"
        " {[a] q = QuantizeLinear(x, scale, zero) [b] y = DequantizeLinear(q, scale, zero)}"
    )
    onnx.save(model, tmp_path / "model.onnx")
    library = rtx_library()
    assert library is not None
    answer, *findings = predicted_by(library, tmp_path / "model.onnx")
    assert answer.evidence["asked"] == f"TensorRT-RTX {library.__version__}"
    assert answer.evidence["documented"] == "TensorRT 10.15"
    assert {finding.code for finding in findings} == ({code} if code else set())
    assert all(finding.is_error and finding.place.node for finding in findings)


def test_a_node_named_like_a_part_of_a_word_leaves_the_reason_as_it_is(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> graph (float[N, 4] x) => (float[N, 4] y)'
        " <float scale = {0.1}, int8 zero = {3}>"
        " {[q] r = QuantizeLinear(x, scale, zero) [d] y = DequantizeLinear(r, scale, zero)}"
    )
    onnx.save(model, tmp_path / "model.onnx")
    library = rtx_library()
    assert library is not None
    _, *findings = predicted_by(library, tmp_path / "model.onnx")
    (told,) = (each.message for each in findings if each.place.node == "q")
    assert "asymmetric quantization" in told


def test_a_missing_plugin_is_no_verdict_on_tensorrt_which_has_it(tmp_path: Path) -> None:
    library = rtx_library()
    assert library is not None
    graph = Graph(ROWS, "int64[A, B] y, float[C] d", "[a] y = NonZero(x) [b] d = Det(x)")
    _, *findings = predicted_by(library, graph.save(tmp_path))
    assert [(each.code, each.severity, each.place.node) for each in findings] == [
        ("T105", "warning", "a"),
        ("T105", "error", "b"),
    ]


def test_a_logger_outlives_its_questions() -> None:
    """The library reports to a process's first logger for good: without it, later graphs crash."""
    library = rtx_library()
    assert library is not None
    logger = weakref.ref(make_logger(library, MessageLog()))
    gc.collect()
    assert logger() is not None
