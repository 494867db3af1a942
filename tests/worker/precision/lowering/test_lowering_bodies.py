"""Weights that are Constant nodes in the branches of an If, as exporters of voice models write."""

import onnx
import onnx.parser
import onnx_ir as ir

from convkit.protocol.module_naming import as_patterns
from convkit.worker.graph.module_scopes import name_scopes
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.lowering.graph_conversion import convert
from convkit.worker.precision.lowering.module_weights import weights_by_module
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign

TEXT = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n,2] x, bool b) => (float[n,2] y) {
    y = If (b) <
        then_branch = t () => (float[n,2] p) {
            w = Constant<value = float[2,2] {1, 2, 3, 4}>()
            p = MatMul(x, w)
        },
        else_branch = e () => (float[n,2] q) { q = Relu(x) }>
}"""


def model() -> ir.Model:
    loaded = ir.from_proto(onnx.parser.parse_model(TEXT))
    name_scopes(loaded)
    return prepare(loaded)


def test_a_weight_in_a_branch_counts_and_is_stored_low():
    prepared = model()
    assignment = assign(prepared, PrecisionPlan("float16"))
    assert weights_by_module(prepared, assignment)["MatMul.0"].low == 4
    converted = convert(prepared, assignment)
    onnx.checker.check_model(ir.to_proto(converted.model), full_check=True)
    assert converted.constants == ("w",)


def test_a_pattern_made_of_operator_and_number_keeps_a_branch_in_float32():
    prepared = model()
    modules = ["If.0", "MatMul.0", "Relu.0"]
    (pattern,) = as_patterns(["MatMul.0"], modules)
    assignment = assign(prepared, PrecisionPlan("float16", (pattern,)))
    assert assignment.unmatched == ()
    assert weights_by_module(prepared, assignment)["MatMul.0"].float32 == 4
    assert convert(prepared, assignment).constants == ()
