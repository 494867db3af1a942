import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from convkit.protocol.module_naming import as_patterns
from convkit.protocol.module_patterns import matches
from convkit.worker.graph.module_scopes import name_scopes
from convkit.worker.graph.node_modules import nodes_with_modules

PLAIN = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n,4] x, bool[] b) => (float[n,4] y) {
    a = Relu(x)
    c = If (b) <
        then_branch = t () => (float[n,4] p) { p = Relu(a) },
        else_branch = e () => (float[n,4] q) { q = Neg(a) }>
    y = Add(a, c)
}"""


def graph(names: list[str] | None = None) -> ir.Model:
    model = onnx.parser.parse_model(PLAIN)
    for node, name in zip(model.graph.node, names or [], strict=False):
        node.name = name
    return ir.from_proto(model)


def modules(model: ir.Model) -> list[str]:
    name_scopes(model)
    return [module for _, module in nodes_with_modules(model)]


def test_nameless_nodes_are_called_by_operator_and_number_in_bodies_too():
    assert modules(graph()) == ["Relu.0", "If.0", "Relu.1", "Neg.0", "Add.0"]


def test_prefixes_of_names_are_scopes_where_they_group():
    names = ["net/block 1/relu", "net/block 1/if", "net/block 2/add"]
    found = modules(graph([*names]))
    assert found[0] == "Relu.0"  # three prefixes for five nodes group nothing
    grouped = graph(["net/one*/relu", "net/one*/if", "head/add"])
    for node, name in zip(list(grouped.graph.all_nodes())[2:4], ("head/a", "head/b"), strict=True):
        node.name = name
    found = modules(grouped)
    assert set(found) == {"net.one_", "head"}
    assert all(matches(module, module) for module in found)  # a path is a pattern


def test_paths_that_are_there_stay():
    model = graph()
    model.graph[0].metadata_props["convkit.module"] = "encoder"
    assert modules(model)[0] == "encoder"


@pytest.mark.parametrize("paths", [[""], ["", "a"]])
def test_the_root_alone_is_a_pattern_that_matches_it(paths):
    (pattern,) = as_patterns([""], paths)
    assert pattern == "."
    assert matches(pattern, "")
