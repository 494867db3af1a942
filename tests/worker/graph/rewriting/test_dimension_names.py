import onnx
import onnx.parser
import onnx_ir
import pytest
from tiny_models import tensor

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.graph.graph_contract import graph_contract
from convkit.worker.graph.rewriting.dimension_names import name_dimensions, take_declared_outputs
from convkit.worker.original.contract_check import check_contract

AXES = (Axis("batch", 1, 4, 16), Axis("past", 1, 4, 16), Axis("sequence", 1, 4, 16))
X = tensor("x", "batch", "sequence")
P = tensor("p", "batch", "past")


def named(shapes, contract):
    """Build a graph of x and p with the given dimensions, name them, and return it."""

    def value(name, shape):
        return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)

    inputs = [value(name, shape) for name, shape in shapes.items() if name != "y"]
    node = onnx.helper.make_node("Concat", [entry.name for entry in inputs], ["y"], axis=1)
    graph = onnx.helper.make_graph([node], "g", inputs, [value("y", shapes["y"])])
    model = onnx_ir.from_proto(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 18)])
    )
    name_dimensions(model, contract)
    return graph_contract(model)


def contract(*output, inputs=(X, P)):
    return Contract(inputs, (tensor("y", *output),), AXES)


@pytest.mark.parametrize(
    ("found", "declared"),
    [
        (["s1", "s3 + s2"], ("batch", "past + sequence")),
        (["s1", "2*s2"], ("batch", "sequence * 2")),
        (["s1", "s2 + s2"], ("batch", "2 * sequence")),
        (["s1", "other_symbol"], ("batch", "sequence")),
        (["s1", None], ("batch", "sequence")),
        (None, ("batch", "sequence")),
    ],
)
def test_symbols_become_the_contracts_words(found, declared):
    wanted = contract(*declared)
    result = named({"x": ["s1", "s2"], "p": ["s1", "s3"], "y": found}, wanted)
    assert result.inputs == wanted.inputs
    assert result.outputs == wanted.outputs


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["s2", "s1"], ("sequence", "batch")),
        (["s1", 7], ("batch", 7)),
        (["s1", "s2 + 1"], ("batch", "sequence + 1")),
    ],
)
def test_what_contradicts_the_contract_stays_and_is_found(found, expected):
    wanted = contract("batch", "sequence")
    result = named({"x": ["s1", "s2"], "p": ["s1", "s3"], "y": found}, wanted)
    assert result.outputs[0].shape == expected
    assert [finding.code[:2] for finding in check_contract(wanted, result, "graph")]


def test_a_size_where_an_axis_is_declared_stays():
    wanted = contract("batch", "sequence")
    result = named({"x": ["s1", 5], "p": ["s1", "s3"], "y": ["s1", "s9"]}, wanted)
    assert result.inputs[0].shape == ("batch", 5)
    assert [finding.code for finding in check_contract(wanted, result, "graph")] == ["C106"]


def test_one_symbol_for_two_axes_is_not_papered_over():
    wanted = contract("batch", "sequence")
    result = named({"x": ["s1", "s2"], "p": ["s1", "s2"], "y": ["s1", "s2"]}, wanted)
    assert result.inputs[1].shape == ("batch", "sequence")
    assert [finding.code for finding in check_contract(wanted, result, "graph")] == ["C107"]


def test_an_inputs_own_arithmetic_symbol_is_spelt_out():
    mask = tensor("m", "batch", "past + sequence")
    wanted = contract("batch", "past + sequence", inputs=(X, P, mask))
    shapes = {"x": ["s1", "s2"], "p": ["s1", "s3"], "m": ["s1", "s4"], "y": ["s1", "2*s4 - s4"]}
    result = named(shapes, wanted)
    assert result.inputs == wanted.inputs
    assert result.outputs == wanted.outputs


def test_paddles_minus_one_is_an_open_size_that_can_be_declared():
    wanted = contract("batch", "sequence", inputs=(X,))
    result = named({"x": [-1, -1], "y": [-1, -1]}, wanted)
    assert (result.inputs, result.outputs) == (wanted.inputs, wanted.outputs)
    assert check_contract(wanted, result, "graph") == []


def test_a_declared_size_stays_out_of_a_graph_whose_branches_may_need_another():
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[n,t] x, bool b) => (float[n,t] y) {
        y = If (b) <
            then_branch = a () => (float[n,t] p) { p = Relu(x) },
            else_branch = b () => (float[n,t] q) { q = Neg(x) }>
    }"""
    model = onnx_ir.from_proto(onnx.parser.parse_model(text))
    axes = (Axis("batch", 1, 4, 16),)
    flag = TensorSpec("b", "bool", ())
    specs = (tensor("x", "batch", 512), flag)
    name_dimensions(model, Contract(specs, (tensor("y", "batch", 512),), axes))
    assert graph_contract(model).inputs[0].shape == ("batch", "t")


@pytest.mark.parametrize(
    ("stated", "declared", "taken"),
    [
        (["n", 7], ("batch", "sequence"), ("batch", "sequence")),
        (["n"], ("batch", "sequence"), ("batch", "sequence")),
        (["n", 7], ("batch", 8), ("n", 7)),  # Relu computes 7: the contract's check says so
        (["n", 5], ("batch", 8), ("batch", 8)),  # the file is wrong: the reference's runs decide
    ],
)
def test_what_a_file_says_of_its_outputs_yields_to_the_declared_shape(stated, declared, taken):
    value = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, stated)
    x = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", 7])
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    model = onnx_ir.from_proto(
        onnx.helper.make_model(onnx.helper.make_graph([node], "g", [x], [value]))
    )
    take_declared_outputs(model, contract(*declared, inputs=(X,)))
    assert graph_contract(model).outputs[0].shape == taken
