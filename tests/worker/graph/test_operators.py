"""What the operators' probes say, held against what the runtime says of the whole model."""

import base64
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from convkit.runtimes.onnxruntime.supported_operators import check_operators
from convkit.worker.graph.operator_probes import graph_operators
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.lowering.graph_conversion import convert
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign
from convkit.worker.runtime_interface.distinct_operators import (
    Operators,
    read_operators,
    write_operators,
)

CPU = "CPUExecutionProvider"


def model(
    body: str,
    *,
    inputs: str = "float[N, 4] x",
    outputs: str = "float[N, 4] y",
    opset: int = 18,
    ir_version: int = 8,
):
    text = (
        f'<ir_version: {ir_version}, opset_import: ["": {opset}]> net ({inputs}) => ({outputs}) {{'
        f" {body} }}"
    )
    return ir.from_onnx_text(text)


def codes(operators: Operators) -> list[str]:
    return [finding.code for finding in check_operators(operators, CPU)]


def loads(given: ir.Model) -> bool:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        onnxruntime.InferenceSession(
            ir.to_proto(given).SerializeToString(), options, providers=[CPU]
        )
    except Exception:  # noqa: BLE001 - onnxruntime's exceptions have no common base
        return False
    return True


HEALTHY = {
    "arithmetic": model("h = Mul(x, x) y = Sqrt(h)"),
    "a constant shape": model("s = Constant<value_ints = [0, 4]>() y = Reshape(x, s)"),
    "float16 with kernels by casts": model(
        "a = Cast<to = 10>(x) b = Mul(a, a) y = Cast<to = 1>(b)"
    ),
    "a branch": model(
        "c = Constant<value: tensor = bool {1}>() y = If(c) <then_branch = t () => (float[N, 4] a)"
        " { a = Relu(x) }, else_branch = e () => (float[N, 4] b) { b = Neg(x) }>"
    ),
    "normalisation": model(
        "s = Constant<value_floats = [1., 1., 1., 1.]>() y = LayerNormalization(x, s)"
    ),
}


@pytest.mark.parametrize("name", list(HEALTHY))
def test_what_loads_raises_nothing(name: str) -> None:
    assert loads(HEALTHY[name])
    assert codes(graph_operators(HEALTHY[name])) == []


def bfloat16(name: str) -> ir.Model:
    prepared = prepare(HEALTHY[name])
    return convert(prepared, assign(prepared, PrecisionPlan("bfloat16"))).model


def test_bfloat16_has_no_kernel_and_all_its_nodes_are_named() -> None:
    low = bfloat16("arithmetic")
    for index, node in enumerate(low.graph):
        node.name = f"node{index}"
        node.metadata_props["convkit.module"] = "block"
        node.metadata_props["convkit.source"] = "model.py:7"
    assert not loads(low)
    onnx.checker.check_model(ir.to_proto(low), full_check=True)  # which passes it
    (finding,) = check_operators(graph_operators(low), CPU)
    assert finding.code == "T101"
    assert finding.place.module == "block"
    assert finding.place.source == "model.py:7"
    listed = finding.evidence["operators"]
    assert {entry["operator"] for entry in listed} == {"Mul", "Sqrt"}
    assert "Could not find an implementation for Mul" in listed[0]["message"]
    assert finding.remedy is not None
    assert finding.remedy.change == {"model.dtype": "float32"}


@pytest.mark.parametrize(("opset", "is_too_old"), [(6, True), (7, False)])
def test_an_opset_that_onnxruntime_does_not_implement_is_named(opset, is_too_old) -> None:
    old = model("h = Add(x, x) y = Relu(h)", opset=opset, ir_version=3)
    assert loads(old) is not is_too_old
    findings = check_operators(graph_operators(old), CPU)
    assert ["the file has opset 6" in f.remedy.text.lower() for f in findings] == [
        True
    ] * is_too_old


def test_types_that_disagree_are_named() -> None:
    mixed = model("h = Cast<to = 10>(x) z = Add(x, h) y = Identity(z)")
    assert not loads(mixed)
    (finding,) = check_operators(graph_operators(mixed), CPU)
    assert finding.code == "T102"
    assert "Add (float32, float16 -> " in finding.message


def test_a_type_that_the_operator_does_not_take_is_named() -> None:
    wrong = model("b = Cast<to = 9>(x) z = Sqrt(b) y = Cast<to = 1>(z)")
    assert not loads(wrong)
    assert codes(graph_operators(wrong)) == ["T103"]


def test_an_operator_that_nobody_registered_is_named() -> None:
    unknown = model("y = com.example.Twice(x)")
    unknown.opset_imports["com.example"] = 1
    assert not loads(unknown)
    found = {finding.code: finding for finding in check_operators(graph_operators(unknown), CPU)}
    assert found["V103"].is_error
    assert "com.example.Twice" in found["V103"].message


def test_a_file_too_new_is_one_finding_and_not_one_for_each_node() -> None:
    newest = model("h = Mul(x, x) y = Sqrt(h)", opset=18)
    newest.ir_version = 99
    (finding,) = check_operators(graph_operators(newest), CPU)
    assert finding.code == "V102"
    assert finding.message.startswith("the file's IR version 99 is newer than onnxruntime")
    later = model("h = Mul(x, x) y = Sqrt(h)", opset=18)
    later.opset_imports[""] = onnx.defs.onnx_opset_version()
    (finding,) = check_operators(graph_operators(later), CPU)
    assert finding.code == "V101"
    assert finding.remedy is not None
    later.opset_imports[""] = finding.remedy.change["export.opset"]
    assert check_operators(graph_operators(later), CPU) == []
    later.opset_imports[""] += 1
    assert codes(graph_operators(later)) == ["V101"]  # the remedy is the newest that it loads
    later.opset_imports[""] = 99  # which ONNX itself does not have, so that nothing converts it
    (finding,) = check_operators(graph_operators(later), CPU)
    assert (finding.code, finding.remedy.change) == ("V101", {})


def test_an_opset_of_another_domain_that_is_too_new_offers_no_change() -> None:
    other = model("h = Mul(x, x) y = Sqrt(h)", opset=18)
    other.opset_imports["ai.onnx.ml"] = 99
    (finding,) = check_operators(graph_operators(other), CPU)
    assert finding.code == "V101"
    assert finding.remedy is not None
    assert finding.remedy.text.startswith(
        "Set export.opset to one that every release in the recipe can load"
    )
    assert not finding.remedy.change


def test_what_cannot_be_typed_is_said_to_be_unchecked() -> None:
    untyped = model("h = com.example.Twice(x) y = Sqrt(h)")
    untyped.opset_imports["com.example"] = 1
    found = {finding.code: finding for finding in check_operators(graph_operators(untyped), CPU)}
    assert found["T104"].severity == "warning"
    assert found["T104"].evidence == {"nodes": 1}


def test_like_nodes_are_asked_once(tmp_path: Path) -> None:
    chain = model(
        " ".join(
            f"{'y' if i == 99 else f'h{i}'} = Mul({f'h{i - 1}' if i else 'x'}, x)"
            for i in range(100)
        )
    )
    operators = graph_operators(chain)
    assert [(operator.name, operator.count) for operator in operators.operators] == [("Mul", 100)]
    write_operators(operators, tmp_path)
    assert read_operators(tmp_path) == operators
    assert read_operators(tmp_path / "nowhere") is None


def test_texts_are_constants_as_others_are() -> None:
    texts = model(
        'a = Constant<value_string = "a">() b = Constant<value_string = "b">() p = Equal(x, a)'
        " q = Equal(x, b) r = Equal(x, b) s = And(p, q) y = And(s, r)",
        inputs="string[N] x",
        outputs="bool[N] y",
        opset=19,
        ir_version=9,
    )
    operators = graph_operators(texts)
    equal = [each for each in operators.operators if each.name == "Equal"]
    assert [each.count for each in equal] == [1, 2]
    first, second = (ir.from_proto(_probe(each.probe)) for each in equal)
    assert [loads(each) for each in (first, second)] == [True, True]
    assert codes(operators) == []


def _probe(encoded: str | None) -> onnx.ModelProto:
    return onnx.ModelProto.FromString(base64.b64decode(encoded or ""))


def test_weights_stay_out_of_the_probes() -> None:
    large = model(
        "s = ConstantOfShape(d) h = MatMul(x, w) y = Identity(h)",
        inputs="float[N, 4] x, int64[1] d",
    )
    weight = ir.Value(
        name="w",
        type=ir.TensorType(ir.DataType.FLOAT),
        shape=ir.Shape([4, 400]),
        const_value=ir.tensor(np.zeros((4, 400), np.float32), name="w"),
    )
    large.graph.register_initializer(weight)
    matmul = next(node for node in large.graph if node.op_type == "MatMul")
    matmul.replace_input_with(1, weight)
    probes = {operator.name: operator.probe for operator in graph_operators(large).operators}
    assert len(base64.b64decode(probes["MatMul"] or "")) < 500


TYPES = [1, 6, 7, 9, 10, 11, 16]  # float, int32, int64, bool, float16, double, bfloat16
UNARY = [
    "Abs",
    "Ceil",
    "Erf",
    "Exp",
    "Gelu",
    "LogSoftmax",
    "Neg",
    "Not",
    "Relu",
    "Sigmoid",
    "Sign",
    "Sqrt",
    "Tanh",
]
BINARY = ["Add", "Div", "Equal", "Less", "MatMul", "Max", "Mod", "Mul", "Or", "Pow", "Sub"]


@settings(max_examples=150)
@given(st.sampled_from(UNARY), st.sampled_from(TYPES), st.sampled_from([13, 17, 18, 20, 21]))
def test_one_operator_is_refused_exactly_where_its_model_is(
    operator: str, dtype: int, opset: int
) -> None:
    given_model = model(
        f"a = Cast<to = {dtype}>(x) b = {operator}(a) y = Cast<to = 1>(b)", opset=opset
    )
    assert (codes(graph_operators(given_model)) == []) == loads(given_model)


@settings(max_examples=150)
@given(
    st.sampled_from(BINARY),
    st.sampled_from(TYPES),
    st.sampled_from(TYPES),
    st.sampled_from([13, 17, 18, 21]),
)
def test_two_operands_are_refused_exactly_where_their_model_is(
    operator: str, one: int, other: int, opset: int
) -> None:
    body = (
        f"a = Cast<to = {one}>(x) b = Cast<to = {other}>(x) c = {operator}(a, b) y = Cast<to ="
        " 1>(c)"
    )
    given_model = model(body, inputs="float[4, 4] x", outputs="float[4, 4] y", opset=opset)
    assert (codes(graph_operators(given_model)) == []) == loads(given_model)
