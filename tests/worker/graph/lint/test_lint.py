"""Each fault of a file has its code and its place; files that are right have neither."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import get_all_operator_schema

from convkit.protocol.findings.finding import Finding
from convkit.worker.graph.lint import opsets
from convkit.worker.graph.lint.check_registry import CHECKS, lint

WEIGHT = np.arange(16, dtype=np.float32).reshape(4, 4)


def model() -> onnx.ModelProto:
    """Return x (batch x 4) -> MatMul -> Relu -> y, with names and a value_info."""
    x, y, h = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in "xyh"
    )
    nodes = [
        helper.make_node("MatMul", ["x", "weight"], ["h"], name="product"),
        helper.make_node("Relu", ["h"], ["y"], name="relu"),
    ]
    weight = numpy_helper.from_array(WEIGHT, "weight")
    graph = helper.make_graph(nodes, "g", [x], [y], [weight], value_info=[h])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def found(made: onnx.ModelProto, folder: Path) -> list[Finding]:
    path = folder / "net.onnx"
    path.write_bytes(made.SerializeToString())
    return lint(path)


def test_a_file_that_is_right_raises_nothing(tmp_path: Path) -> None:
    assert found(model(), tmp_path) == []


def outputs_twice(made: onnx.ModelProto) -> None:
    made.graph.output.append(made.graph.output[0])


def opset_twice(made: onnx.ModelProto) -> None:
    made.opset_import.append(helper.make_opsetid("ai.onnx", 11))


def opset_twice_the_same(made: onnx.ModelProto) -> None:
    made.opset_import.append(helper.make_opsetid("ai.onnx", 17))


def onnxruntime_s_own_domain(made: onnx.ModelProto) -> None:
    """As onnxruntime's optimizer writes it; every release of it runs this."""
    made.graph.node[1].op_type, made.graph.node[1].domain = "Gelu", "com.microsoft"


def old_file_with_constant_weights(made: onnx.ModelProto) -> None:
    """From IR version 4 on, weights need not be inputs; runtimes never asked for it."""
    made.ir_version = 3


def no_opset(made: onnx.ModelProto) -> None:
    del made.opset_import[:]


def opset_zero(made: onnx.ModelProto) -> None:
    made.opset_import[0].version = 0


def domain_not_imported(made: onnx.ModelProto) -> None:
    made.graph.node[1].domain = "com.acme"


def unknown_operator(made: onnx.ModelProto) -> None:
    made.graph.node[1].op_type = "Relux"


def operator_of_a_later_opset(made: onnx.ModelProto) -> None:
    made.graph.node[1].op_type = "Gelu"


def empty(made: onnx.ModelProto) -> None:
    del made.graph.node[:]


def no_outputs(made: onnx.ModelProto) -> None:
    del made.graph.output[:]


def unsorted(made: onnx.ModelProto) -> None:
    nodes = list(made.graph.node)[::-1]
    del made.graph.node[:]
    made.graph.node.extend(nodes)


def cycle(made: onnx.ModelProto) -> None:
    made.graph.node[0].input[0] = "y"


def dangling(made: onnx.ModelProto) -> None:
    made.graph.node[0].input[1] = "wieght"


def dangling_in_a_branch(made: onnx.ModelProto) -> None:
    branch = helper.make_graph(
        [helper.make_node("Neg", ["nowhere"], ["n"])],
        "then",
        [],
        [helper.make_tensor_value_info("n", TensorProto.FLOAT, None)],
    )
    made.graph.initializer.append(numpy_helper.from_array(np.array(True), "yes"))
    made.graph.node.append(
        helper.make_node("If", ["yes"], ["z"], name="if", then_branch=branch, else_branch=branch)
    )


def computed_twice(made: onnx.ModelProto) -> None:
    made.graph.node.append(helper.make_node("Neg", ["x"], ["h"]))


def weight_twice(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(made.graph.initializer[0])


def output_of_no_node(made: onnx.ModelProto) -> None:
    made.graph.output[0].name = "z"


def node_writes_an_input(made: onnx.ModelProto) -> None:
    made.graph.node.append(helper.make_node("Neg", ["h"], ["x"]))


def output_is_an_input(made: onnx.ModelProto) -> None:
    made.graph.output.append(made.graph.input[0])


def output_is_a_weight(made: onnx.ModelProto) -> None:
    made.graph.output.append(helper.make_tensor_value_info("weight", TensorProto.FLOAT, [4, 4]))


def missing_attribute(made: onnx.ModelProto) -> None:
    made.graph.node[1].op_type = "Cast"


def short_weight(made: onnx.ModelProto) -> None:
    made.graph.initializer[0].raw_data = b"\0" * 8


def unused_weight(made: onnx.ModelProto) -> None:
    made.graph.initializer.append(numpy_helper.from_array(WEIGHT + 1, "lost"))


def not_a_number(made: onnx.ModelProto) -> None:
    values = WEIGHT.copy()
    values[1, 2] = np.nan
    made.graph.initializer[0].CopyFrom(numpy_helper.from_array(values, "weight"))


def declared_type(made: onnx.ModelProto) -> None:
    made.graph.value_info[0].type.tensor_type.elem_type = TensorProto.INT64


def declared_shape(made: onnx.ModelProto) -> None:
    made.graph.value_info[0].type.tensor_type.shape.dim[1].dim_value = 5


def declared_rank(made: onnx.ModelProto) -> None:
    made.graph.value_info[0].type.tensor_type.shape.dim.add()


FAULTS: dict[Callable[[onnx.ModelProto], None], tuple[str, str, str]] = {
    outputs_twice: ("E234", "y", "two outputs of one name"),
    opset_twice: ("E232", "opset_import", "versions 17, 11"),
    no_opset: ("E232", "product", "without importing"),
    opset_zero: ("E232", "opset_import", "does not exist"),
    domain_not_imported: ("E232", "relu", "'com.acme'"),
    unknown_operator: ("E233", "relu", "perhaps 'Relu'"),
    operator_of_a_later_opset: ("E233", "relu", "from opset 20 on"),
    empty: ("E235", "net.onnx", "computes nothing"),
    no_outputs: ("E235", "net.onnx", "no outputs"),
    unsorted: ("E234", "relu", "not sorted"),
    cycle: ("E234", "product", "cycle"),
    dangling: ("E234", "product", "perhaps 'weight'"),
    dangling_in_a_branch: ("E234", "nowhere", "no node, input or weight"),
    computed_twice: ("E234", "h", "two results of nodes"),
    weight_twice: ("E234", "weight", "two weights of one name"),
    output_of_no_node: ("E234", "z", "computed by no node"),
    node_writes_an_input: ("E234", "x", "both an input or weight"),
    output_is_an_input: ("E235", "x", "is an input"),
    output_is_a_weight: ("E235", "weight", "is a weight"),
    missing_attribute: ("E238", "relu", "does not follow the standard"),
    short_weight: ("E238", "net.onnx", "weight"),
    unused_weight: ("E237", "lost", "no node reads"),
    not_a_number: ("E239", "weight", "1 of 16"),
    declared_type: ("E236", "h", "int64, and MatMul product computes float"),
    declared_shape: ("E236", "h", "[batch, 5]"),
    declared_rank: ("E236", "h", "[batch, 4, ?]"),
}
DOUBTS = {output_is_an_input, output_is_a_weight, unused_weight, declared_shape, declared_rank}


@pytest.mark.parametrize("damage", FAULTS, ids=lambda damage: damage.__name__)
def test_a_fault_has_its_code_and_place(
    damage: Callable[[onnx.ModelProto], None], tmp_path: Path
) -> None:
    code, place, text = FAULTS[damage]
    made = model()
    damage(made)
    findings = found(made, tmp_path)
    assert {finding.code for finding in findings} == {code}
    first = findings[0]
    assert place in str(first.place).split(", ")
    assert text in first.message
    assert first.remedy is not None
    assert first.is_error == (damage not in DOUBTS)


@pytest.mark.parametrize(
    "change", [opset_twice_the_same, onnxruntime_s_own_domain, old_file_with_constant_weights]
)
def test_what_every_runtime_accepts_is_no_fault(
    change: Callable[[onnx.ModelProto], None], tmp_path: Path
) -> None:
    made = model()
    change(made)
    assert found(made, tmp_path) == []


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:", "Git LFS pointer"),
        (b"PK\x03\x04rest of a zip", "zip archive"),
        (b"\x1c\0\0\0TFL3" + b"\0" * 30, "TensorFlow Lite"),
        (b"\xff not protobuf", "not a complete ONNX model"),
        (model().SerializeToString()[:-40], "not a complete ONNX model"),
    ],
)
def test_what_is_no_model_is_named(content: bytes, text: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(content)
    (finding,) = lint(path)
    assert (finding.code, finding.is_error) == ("E231", True)
    assert text in finding.message
    assert "Error" not in finding.message  # no exception's name


def test_every_check_has_a_fault() -> None:
    codes = {code for code, _, _ in FAULTS.values()}
    assert codes == {f"E23{digit}" for digit in range(2, 10)}
    assert len(CHECKS) == 7


def test_vectors_that_an_exporter_left_behind_are_no_lost_layer(tmp_path: Path) -> None:
    made = model()
    made.graph.initializer.append(numpy_helper.from_array(np.zeros((1, 200), np.float32), "val_7"))
    assert found(made, tmp_path) == []


def test_branches_may_read_the_values_outside(tmp_path: Path) -> None:
    made = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17]> g (float[n] x, bool c) => (float[n] y) {
            h = Neg (x)
            y = If (c) <
                then_branch = then () => (float[n] a) { a = Add (x, h) },
                else_branch = else () => (float[n] b) { b = Identity (h) }
            >
        }"""
    )
    assert found(made, tmp_path) == []


def test_operators_of_a_model_s_own_functions_are_known(tmp_path: Path) -> None:
    made = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["": 17, "own": 1]> g (float[n] x) => (float[n] y) {
            y = own.Double (x)
        }
        <domain: "own", opset_import: ["": 17]> Double (a) => (b) { b = Add (a, a) }"""
    )
    assert found(made, tmp_path) == []


def test_operators_of_onnxruntime_in_onnx_s_domain_are_those_that_it_registers() -> None:
    """Compared with its schemas; the other operators it has there run on a device only."""
    schemas = defaultdict(list)
    for schema in get_all_operator_schema():
        if schema.domain == "":
            schemas[schema.name].append((schema.since_version, schema.deprecated))
    standard: dict[str, int] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if schema.domain == "":
            first = standard.get(schema.name, schema.since_version)
            standard[schema.name] = min(first, schema.since_version)
    early = {name for name, found in schemas.items() if min(found)[0] < standard.get(name, 99)}
    early = {name for name in early if not name.endswith("_TRT") and "Memcpy" not in name}
    ended = {name for name in early if max(schemas[name]) == (10, True)}
    assert ended == opsets._EXPERIMENTS
    assert early - ended == opsets._OF_ONNXRUNTIME


def test_an_operator_of_onnxruntime_s_optimizer_is_fine_before_onnx_has_it(tmp_path: Path) -> None:
    made = onnx.parser.parse_model(
        """<ir_version: 7, opset_import: ["" : 12]>
        g (float[2,4] x, float[4] scale) => (float[2,4] y) { y = LayerNormalization(x, scale) }"""
    )
    assert found(made, tmp_path) == []
    onnxruntime.InferenceSession(tmp_path / "net.onnx", providers=["CPUExecutionProvider"])
    made.graph.node[0].op_type = "SimplifiedLayerNormalization"
    assert found(made, tmp_path) == []
    made.graph.node[0].op_type = "GroupNormalization"
    assert "E233" in [finding.code for finding in found(made, tmp_path)]


def test_an_operator_that_is_not_alike_is_not_suggested(tmp_path: Path) -> None:
    made = model()
    made.graph.node[1].op_type = "RequantShift"
    (finding,) = (each for each in found(made, tmp_path) if each.code == "E233")
    assert "perhaps" not in finding.message
    assert finding.remedy is not None
    assert "the domain of the library" in finding.remedy.text
