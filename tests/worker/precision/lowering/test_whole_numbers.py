"""Whole numbers that a graph computes with in floats stay in float32 when the rest is lowered."""

import numpy as np
import onnx_ir as ir
import pytest

from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.lowering.graph_conversion import convert
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign
from convkit.worker.precision.simulation.simulated_graph import simulate
from convkit.worker.precision.tensor_statistics import open_session

HEADER = '<ir_version: 8, opset_import: ["": 17]>\n'
# The first `most` rows, with a limit of integers for "to the end": tf2onnx's way.
SLICED = """g (float[n, 4] x, int64[1] most) => (float[m, 4] y) {
    [widen] wide = Cast<to=1>(most)
    least = Constant<value_floats=[1.0]>()
    [most] larger = Max(wide, least)
    [end] end = Cast<to=7>(larger)
    start = Constant<value_ints=[0]>()
    [slice] part = Slice(x, start, end, start)
    [layer] y = Tanh(part)
}"""
# The logarithm of a distance, as a bucket's number: T5's way.
BUCKETS = """g (int64[n] distance, float[9000, 4] table) => (float[n, 4] y) {
    [widen] wide = Cast<to=1>(distance)
    one = Constant<value_float=1.0>()
    [add] more = Add(wide, one)
    [log] log = Log(more)
    scale = Constant<value_float=950.3>()
    [scale] scaled = Mul(log, scale)
    [bucket] bucket = Cast<to=7>(scaled)
    [look] rows = Gather(table, bucket)
    [layer] y = Tanh(rows)
}"""
# A mask in floats is no whole number that anything counts with.
MASKED = """g (float[n, 4] x, int64[n, 4] mask) => (float[n, 4] y) {
    [widen] wide = Cast<to=1>(mask)
    one = Constant<value_float=1.0>()
    [invert] hidden = Sub(one, wide)
    least = Constant<value_float=-10000.0>()
    [bias] bias = Mul(hidden, least)
    [add] scores = Add(x, bias)
    [layer] y = Softmax<axis=-1>(scores)
}"""
# One is also an output, or meets an activation: then it is a value like any other.
AN_OUTPUT = SLICED.replace("(float[m, 4] y)", "(float[m, 4] y, float[1] larger)")
MIXED = """g (float[n] x, int64[n] count) => (int64[n] y) {
    [widen] wide = Cast<to=1>(count)
    [add] sum = Add(wide, x)
    [floor] floor = Floor(sum)
    [end] y = Cast<to=7>(floor)
}"""


def kept(text: str, dtype: str = "float16") -> set[str]:
    """Return the names of the nodes that stay in float32."""
    choices = assign(prepare(ir.from_onnx_text(HEADER + text)), PrecisionPlan(dtype)).choices
    return {node.name or "" for node, choice in choices.items() if choice.dtype == "float32"}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (SLICED, {"most"}),
        (BUCKETS, {"add", "log", "scale"}),
        (MASKED, set()),
        (AN_OUTPUT, set()),
        (MIXED, set()),
    ],
    ids=["sliced", "buckets", "masked", "an output", "mixed"],
)
def test_steps_between_integers_stay(text: str, expected: set[str], dtype: str) -> None:
    assert kept(text, dtype) == expected


def test_the_reason_is_told() -> None:
    choices = assign(prepare(ir.from_onnx_text(HEADER + SLICED)), PrecisionPlan("float16")).choices
    (reason,) = {each.reason for each in choices.values() if each.dtype == "float32"}
    assert reason == "operator Max computes with whole numbers"


@pytest.mark.parametrize(
    ("text", "feeds"),
    [
        (SLICED, {"x": np.ones((5, 4), np.float32), "most": np.array([2147483000])}),
        (SLICED, {"x": np.ones((5000, 4), np.float32), "most": np.array([4099])}),
        (
            BUCKETS,
            {
                "distance": np.arange(8000),
                # Neighbors differ: another bucket shows.
                "table": np.tile([[0.9], [-0.9]], (4500, 4)).astype(np.float32),
            },
        ),
    ],
    ids=["to the end", "beyond 2048", "buckets"],
)
def test_the_lowered_graph_counts_as_before(text: str, feeds: dict[str, np.ndarray]) -> None:
    model = prepare(ir.from_onnx_text(HEADER + text))
    lowered = convert(model, assign(model, PrecisionPlan("float16"))).model
    (expected,) = open_session(model, None, 1).run(["y"], feeds)
    (found,) = open_session(simulate(lowered), None, 1).run(["y"], feeds)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=2e-3)


def test_classical_operators_without_types_are_asked_of_onnxruntime() -> None:
    text = """<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]>
    g (float[n, 2] x) => (float[n, 2] y) {
        scaled = ai.onnx.ml.Scaler<offset=[1.0, 2.0], scale=[0.5, 0.25]>(x)
        normed = ai.onnx.ml.Normalizer<norm="L2">(scaled)
        y = Tanh(normed)
    }"""
    model = prepare(ir.from_onnx_text(text))
    assert {value.dtype for node in model.graph for value in node.outputs} == {ir.DataType.FLOAT}
