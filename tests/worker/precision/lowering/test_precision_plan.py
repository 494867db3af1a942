import onnx_ir as ir
import pytest

from convkit.worker.graph.node_modules import module_path
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.lowering.precision_plan import (
    PlanError,
    PrecisionPlan,
    assign,
    module_table,
)

TWO_LAYERS = """<ir_version: 9, opset_import: ["": 18]>
g (float[N, 4] x) => (float[N, 4] y) <float[4, 4] w = {1,0,0,0, 0,1,0,0, 0,0,1,0, 0,0,0,1}> {
    [a] h = MatMul(x, w)
    [b] n = Neg(h)
    [s] shape = Shape(h)
    [c] y = Relu(n)
}"""


@pytest.fixture
def model():
    found = prepare(ir.from_onnx_text(TWO_LAYERS))
    for node, path in zip(
        found.graph, ("layer.0.dense", "layer.1", "layer.1", "layer.10"), strict=True
    ):
        node.metadata_props["convkit.module"] = path
    return found


def by_name(assignment):
    return {node.name: (choice.dtype, choice.reason) for node, choice in assignment.choices.items()}


def test_every_node_that_touches_float32_gets_a_type_and_a_reason(model):
    assert by_name(assign(model, PrecisionPlan("float16", ("layer.1",)))) == {
        "a": ("float16", "default"),
        "b": ("float32", "pattern layer.1"),
        "s": ("float32", "pattern layer.1"),
        "c": ("float16", "default"),
    }


def test_the_default_may_be_float32(model):
    assert {
        choice.dtype for choice in assign(model, PrecisionPlan("float32")).choices.values()
    } == {"float32"}


def test_a_pattern_that_matches_nothing_is_reported_with_its_neighbor(model):
    plan = PrecisionPlan("float16", ("layers.0", "layer.0", "layer.0.dense"))
    (unmatched,) = assign(model, plan).unmatched
    assert (unmatched.pattern, unmatched.nearest) == ("layers.0", "layer.0")


def test_a_default_that_is_no_float_is_refused():
    with pytest.raises(PlanError, match="int8"):
        PrecisionPlan("int8")


def test_an_operator_without_a_low_form_stays_in_float32():
    model = prepare(
        ir.from_onnx_text("""<ir_version: 9, opset_import: ["": 18]>
        g (float a, float b, float d) => (float[N] y) { [r] y = Range(a, b, d) }""")
    )
    ((dtype, reason),) = by_name(assign(model, PrecisionPlan("float16"))).values()
    assert dtype == "float32"
    assert reason == "operator Range has no float16 form in opset 18"


def test_an_operator_without_a_schema_stays_in_float32():
    model = ir.from_onnx_text("""<ir_version: 9, opset_import: ["": 18, "own": 1]>
        g (float[N] x) => (float[N] y) { [r] y = own.Strange(x) }""")
    ((dtype, reason),) = by_name(assign(prepare(model), PrecisionPlan("float16"))).values()
    assert (dtype, reason) == ("float32", "operator own.Strange has no schema in opset 1")


def test_the_table_counts_each_modules_own_nodes(model):
    rows = module_table(model, assign(model, PrecisionPlan("float16", ("layer.1",))))
    assert [(row.module, row.low, row.float32, row.reasons) for row in rows] == [
        ("layer.0.dense", 1, 0, ()),
        ("layer.1", 0, 2, ("pattern layer.1",)),
        ("layer.10", 1, 0, ()),
    ]


def test_nodes_of_a_branch_belong_to_the_module_of_the_if():
    model = prepare(
        ir.from_onnx_text("""<ir_version: 9, opset_import: ["": 18]>
        g (bool c, float[N] x) => (float[N] y) {
            [i] y = If (c) <then_branch = t () => (float[N] a) { [p] a = Exp(x) },
                            else_branch = e () => (float[N] b) { [q] b = Neg(x) }>
        }""")
    )
    next(iter(model.graph)).metadata_props["convkit.module"] = "gate"
    assert {
        choice.dtype
        for choice in assign(model, PrecisionPlan("float16", ("gate",))).choices.values()
    } == {"float32"}


@pytest.mark.parametrize(
    ("scopes", "path"),
    [
        ("['', 'encoder', 'encoder.layer.0', 'linear_1']", "encoder.layer.0"),
        ("['', 'add']", ""),
        ("['_empty_nn_module_stack_from_metadata_hook', 'sym_size_int']", ""),
        ("not a list", ""),
        ("['alone']", ""),
    ],
)
def test_the_exporters_own_scopes_are_read(scopes, path):
    assert (
        module_path(ir.node("Relu", [], metadata_props={"pkg.torch.onnx.name_scopes": scopes}))
        == path
    )


def test_convkits_module_path_comes_first():
    props = {"pkg.torch.onnx.name_scopes": "['', 'raw', 'x']", "convkit.module": "clean"}
    assert module_path(ir.node("Relu", [], metadata_props=props)) == "clean"
