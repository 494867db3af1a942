"""Rules look at a node's operator first: the same graphs, in time linear in the nodes."""

import contextlib

import numpy as np
import onnx_ir
import pytest
from onnxscript import rewriter
from onnxscript.rewriter import _matcher, _rewrite_rule, pattern

from convkit.worker.exporters.onnxscript_speed import operators_first


def chain(nodes: int) -> onnx_ir.Model:
    """Return a chain of Relu and Neg, each followed by adding 0, which the default rules drop."""
    zero = onnx_ir.Value(
        name="zero",
        shape=onnx_ir.Shape(()),
        type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT),
        const_value=onnx_ir.tensor(np.float32(0), name="zero"),
    )
    value = first = onnx_ir.Value(
        name="x", shape=onnx_ir.Shape([4]), type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT)
    )
    made = []
    for index in range(nodes):
        made.append(onnx_ir.node("Neg" if index % 2 else "Relu", [value]))
        made.append(onnx_ir.node("Add", [made[-1].outputs[0], zero]))
        value = made[-1].outputs[0]
    graph = onnx_ir.Graph(
        [first], [value], nodes=made, initializers=[zero], opset_imports={"": 18}, name="chain"
    )
    return onnx_ir.Model(graph, ir_version=10)


def two_outputs_rule() -> pattern.RewriteRule:
    """Return a rule with two output nodes, which applies nowhere in a chain."""

    def target(op, x, y):
        return op.Sin(x), op.Cos(y)

    def replacement(op, x, y):
        return op.Cos(x), op.Sin(y)

    return pattern.RewriteRule(target, replacement)


def looks(nodes: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how many nodes' operators a rule with two outputs looks at."""
    count = 0
    original = onnx_ir.Node.op_identifier

    def counted(self):
        nonlocal count
        count += 1
        return original(self)

    with monkeypatch.context() as patch:
        patch.setattr(onnx_ir.Node, "op_identifier", counted)
        rewriter.rewrite(chain(nodes), [two_outputs_rule()])
    return count


def test_a_rule_with_two_outputs_no_longer_walks_the_graph_for_each_node(monkeypatch):
    before = looks(40, monkeypatch)
    with operators_first():
        after = looks(40, monkeypatch)
    assert before >= 80 * 80 > 80 >= after


def test_the_same_rules_apply():
    expected = rewriter.rewrite(chain(6))
    with operators_first():
        found = rewriter.rewrite(chain(6))
    assert not any(node.op_type == "Add" for node in found.graph)
    assert [node.op_type for node in found.graph] == [node.op_type for node in expected.graph]


def test_a_rule_is_tried_only_where_it_can_begin(monkeypatch):
    tried = []
    original = _matcher.SimplePatternMatcher.match

    def counted(self, model, graph, node, **options):
        tried.append(node.op_type)
        return original(self, model, graph, node, **options)

    monkeypatch.setattr(_matcher.SimplePatternMatcher, "match", counted)
    rule = pattern.RewriteRule(lambda op, x: op.Neg(x), lambda op, x: op.Abs(x))
    with operators_first():
        found = rewriter.rewrite(chain(6), [rule])
    assert tried == ["Neg"] * 3
    assert [node.op_type for node in found.graph] == ["Relu", "Add", "Abs", "Add"] * 3


def test_onnxscript_is_as_before_afterwards():
    original = _rewrite_rule.RewriteRule.try_rewrite
    with operators_first():
        assert _rewrite_rule.RewriteRule.try_rewrite is not original
    assert _rewrite_rule.RewriteRule.try_rewrite is original
    with contextlib.suppress(RuntimeError), operators_first():
        raise RuntimeError
    assert _rewrite_rule.RewriteRule.try_rewrite is original
