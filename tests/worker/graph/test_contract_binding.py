import onnx
import onnx_ir
from tiny_models import tensor

from convkit.protocol.contract import Contract
from convkit.worker.graph.graph_contract import order_inputs, rename_to_contract

TEXT = (
    '<ir_version: 8, opset_import: ["" : 18]> g (float[n] a, float[n] b) => (float[n] c) { c ='
    " Sub(a, b) }"
)


def names(contract):
    model = onnx_ir.from_proto(onnx.parser.parse_model(TEXT))
    rename_to_contract(model, contract)
    order_inputs(model, contract)
    onnx.checker.check_model(onnx_ir.to_proto(model))
    graph = model.graph
    node = graph[0]
    read = [value.name for value in node.inputs]
    return [value.name for value in graph.inputs], read, [value.name for value in graph.outputs]


def contract(*inputs, output=None):
    return Contract(inputs, (output or tensor("c", "n"),), ())


def test_inputs_take_the_contracts_order_and_keep_their_meaning():
    assert names(contract(tensor("b", "n"), tensor("a", "n"))) == (["b", "a"], ["a", "b"], ["c"])


def test_names_given_as_from_are_replaced():
    found = names(
        contract(
            tensor("minuend", "n", origin="a"),
            tensor("b", "n"),
            output=tensor("d", "n", origin="c"),
        )
    )
    assert found == (["minuend", "b"], ["minuend", "b"], ["d"])


def test_other_names_are_left_for_the_check_to_see():
    assert names(contract(tensor("b", "n"), tensor("x", "n"))) == (["a", "b"], ["a", "b"], ["c"])
    assert names(contract(tensor("b", "n"))) == (["a", "b"], ["a", "b"], ["c"])


def test_a_name_that_is_taken_is_not_given_twice():
    assert names(contract(tensor("b", "n", origin="a"), tensor("a", "n")))[0] == ["b", "a"]
