"""Dynamically quantized layers keep their scales in float32 when the rest becomes float16."""

import numpy as np
import onnx_ir as ir
import pytest

from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.lowering.graph_conversion import convert
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign
from convkit.worker.precision.simulation.simulated_graph import simulate
from convkit.worker.precision.tensor_statistics import open_session

# The sums of 64 products of bytes reach millions; the product of both scales is near 1e-6.
QUANTIZED = """<ir_version: 8, opset_import: ["": 17]>
g (float[1, 64] x) => (float[1, 2] y) {
    [quantize] q, scale, zero = DynamicQuantizeLinear(x)
    [multiply] sums = MatMulInteger(q, weight, zero)
    [shift] shifted = Add(sums, bias)
    [widen] wide = Cast<to=1>(shifted)
    [scales] both = Mul(scale, weight_scale)
    [dequantize] h = Mul(wide, both)
    [gate] s = Sigmoid(h)
    [swish] y = Mul(h, s)
}"""


@pytest.fixture
def model() -> ir.Model:
    found = ir.from_onnx_text(QUANTIZED)
    weights = {
        "weight": np.full((64, 2), 100, np.int8),
        "bias": np.array([5, -5], np.int32),
        "weight_scale": np.array(1e-4, np.float32),
    }
    for value in [value for node in found.graph for value in node.inputs if value is not None]:
        if value.name in weights and value.name not in found.graph.initializers:
            value.const_value = ir.tensor(weights[value.name])
            value.type = ir.TensorType(value.const_value.dtype)
            found.graph.register_initializer(value)
    return prepare(found)


def test_scales_of_integer_products_stay_in_float32(model: ir.Model) -> None:
    choices = assign(model, PrecisionPlan("float16")).choices
    named = {node.name: choice for node, choice in choices.items()}
    kept = {name for name, choice in named.items() if choice.dtype == "float32"}
    assert kept == {"quantize", "scales", "dequantize"}
    assert named["dequantize"].reason == "operator Mul scales an integer product"


def test_integer_sums_beyond_float16_do_not_overflow(model: ir.Model) -> None:
    x = {"x": np.linspace(0.5, 1, 64, dtype=np.float32)[None]}
    lowered = convert(model, assign(model, PrecisionPlan("float16"))).model
    expected = open_session(model, None, 1).run(["y"], x)[0]
    found = open_session(simulate(lowered), None, 1).run(["y"], x)[0]
    np.testing.assert_allclose(found, expected, rtol=5e-3)
