"""Comparisons of sizes and values, read from a graph's nodes."""

import onnx
import pytest

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.cases.decision_sizes import turns
from convkit.worker.graph.input_comparisons import graph_decisions

CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", "sequence")),),
    (),
    (Axis("batch", 1, 4, 8), Axis("sequence", 2, 16, 64)),
)
BASE = {"batch": 3, "sequence": 7}
_LENGTH = """
    shape = Shape(x)
    one = Constant<value_int=1>()
    axis = Constant<value = int64[1] {1}>()
    place = Constant<value = int64 {1}>()
    n = Gather<axis=0>(shape, place)
"""


def read(tmp_path, body):
    text = f"""
<ir_version: 8, opset_import: ["" : 18]>
g (float[batch, sequence] x) => (float[batch, sequence] y) {{ {body} }}
"""
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    return graph_decisions(path, CONTRACT)


def sides(decisions):
    return [
        (turn.axis, turn.below[turn.axis])
        for decision in decisions.sizes
        for turn in turns(decision, CONTRACT, BASE)
    ]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("c = Constant<value = int64 {12}>() q = Greater(n, c)", [("sequence", 12)]),
        ("c = Constant<value = int64 {12}>() q = Less(c, n)", [("sequence", 12)]),
        (
            "c = Constant<value = int64 {12}>() q = Equal(n, c)",
            [("sequence", 11), ("sequence", 12)],
        ),
        (
            ("c = Constant<value = int64 {3}>() t = Constant<value = int64 {4}>()"
             " d = Div(n, t) q = GreaterOrEqual(d, c)"),
            [("sequence", 11)],
        ),
        (
            ("c = Constant<value = int64[1] {100}>()"
             " p = ReduceProd<keepdims=1>(shape) q = Greater(p, c)"),
            [("sequence", 33)],
        ),
        ("f = Cast<to=1>(n) c = Constant<value = float {12.0}>() q = Greater(f, c)",
         [("sequence", 12)]),
        ("c = Constant<value = int64 {900}>() q = Greater(n, c)", []),
    ],
)  # fmt: skip
def test_comparisons_of_sizes(tmp_path, body, expected):
    decisions = read(tmp_path, _LENGTH + body + " z = Cast<to=1>(q) y = Mul(x, z)")
    assert sides(decisions) == expected
    assert all(each.place.startswith("node ") for each in decisions.sizes)


def test_a_branch_in_a_subgraph(tmp_path):
    body = """
        c = Constant<value = int64 {12}>()
        d = Constant<value = int64 {30}>()
        q = Greater(n, c)
        y = If(q) <
            then_branch = a () => (float[batch, sequence] t) {
                r = Greater(n, d) f = Cast<to=1>(r) t = Mul(x, f)
            },
            else_branch = b () => (float[batch, sequence] e) { e = Identity(x) }
        >
    """
    assert sides(read(tmp_path, _LENGTH + body)) == [("sequence", 12), ("sequence", 30)]


@pytest.mark.parametrize(
    ("body", "value", "exact"),
    [
        ("c = Constant<value = float {5.0}>() q = Greater(x, c)", 5.0, True),
        ("c = Constant<value = float {5.0}>() t = Transpose(x) u = Transpose(t) q = Less(c, u)",
         5.0, True),
        (("t = Constant<value = float {2.0}>() c = Constant<value = float {5.0}>() u = Mul(x, t)"
          " q = Greater(u, c)"), 2.5, False),
        (("c = Constant<value = float {5.0}>() m = Constant<value = float {0.5}>()"
          " k = Clip(x, m, c) q = Cast<to=9>(k)"), 5.0, True),
    ],
)  # fmt: skip
def test_comparisons_of_values(tmp_path, body, value, exact):
    decisions = read(tmp_path, body + " z = Cast<to=1>(q) y = Mul(x, z)")
    assert (value, exact) in {(each.value, each.exact) for each in decisions.thresholds}
    assert {each.tensor for each in decisions.thresholds} == {"x"}


def test_what_is_no_longer_the_inputs_own_value_is_not_followed(tmp_path):
    body = "c = Constant<value = float {0.5}>() t = Tanh(x) q = Greater(t, c)"
    assert read(tmp_path, body + " z = Cast<to=1>(q) y = Mul(x, z)").thresholds == ()


def test_a_file_that_is_no_model_decides_nothing(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(b"\xff\xff no model")
    assert graph_decisions(path, CONTRACT).sizes == ()


def test_limits_that_are_infinite_or_no_whole_numbers(tmp_path):
    body = """
        f = Cast<to=1>(n) c = Constant<value = float {12.5}>() q = Greater(f, c)
        z = Constant<value = float {0.0}>() o = Constant<value = float {1.0}>() i = Div(o, z)
        y = Where(q, x, x)
    """
    assert sides(read(tmp_path, _LENGTH + body)) == [("sequence", 12)]
