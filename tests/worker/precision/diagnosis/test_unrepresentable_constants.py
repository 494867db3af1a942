import ml_dtypes
import numpy as np
import onnx_ir as ir
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from convkit.protocol.float_limits import LIMITS
from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.array_rounding import round_array
from convkit.worker.precision.diagnosis.unrepresentable_constants import scan_constants
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign


def model_with(weights: np.ndarray, body: str = "y = Mul(x, w)") -> ir.Model:
    text = (
        '<ir_version: 9, opset_import: ["": 18]> g (float[N] x) => (float[N] y) <float[1] w ='
        f" {{1}}> {{ {body} }}"
    )
    model = ir.from_onnx_text(text)
    value = model.graph.initializers["w"]
    value.const_value, value.shape = ir.tensor(weights, name="w"), ir.Shape(list(weights.shape))
    return prepare(model)


def scan(values, dtype="float16", body="y = Mul(x, w)"):
    found = scan_constants(model_with(np.asarray(values, np.float32), body), dtype)
    return found[0] if found else None


def test_harmless_constants_are_not_reported():
    assert scan([0, 1, -65504, 2.0**-14]) is None


@pytest.mark.parametrize(
    ("values", "issue", "counts"),
    [
        ([1, 65519.996], None, None),
        ([1, 65520], "mask", (1, 0, 0, 0)),
        ([1e5, -2e5], "overflow", (2, 0, 0, 0)),
        ([np.nan, -np.inf, 1], "nonfinite", (0, 0, 0, 2)),
        ([1e-9, -1e-9, 1], "flushed", (0, 2, 0, 0)),
        ([2.0**-25, 1], "flushed", (0, 1, 0, 0)),
        ([np.nextafter(np.float32(2.0**-25), np.float32(1)), 1], "subnormal", (0, 0, 1, 0)),
        ([1e-5, 1], "subnormal", (0, 0, 1, 0)),
    ],
)
def test_each_fate_is_counted(values, issue, counts):
    found = scan(values)
    assert (found.issue if found else None) == issue
    if found:
        assert (found.overflowing, found.flushed, found.subnormal, found.nonfinite) == counts


def test_float32s_lowest_value_overflows_bfloat16_too():
    assert scan([np.finfo(np.float32).min], "bfloat16").issue == "mask"
    assert scan([-1e9], "bfloat16") is None


@pytest.mark.parametrize(
    ("body", "is_mask"),
    [
        ("c = IsNaN(x)\n y = Where(c, w, x)", True),
        ("y = Add(x, w)", True),
        ("s = Shape(x)\n e = Expand(w, s)\n y = Add(x, e)", True),
        ("y = Div(x, w)", False),
    ],
)
def test_a_mask_is_told_from_a_number_that_is_computed_with(body, is_mask):
    assert scan([-3.4e38], body=body).is_mask is is_mask


def test_an_epsilon_that_vanishes_whole_is_marked():
    assert scan([1e-12], body="a = Add(x, w)\n y = Sqrt(a)").vanishes
    assert scan([0, 1e-12]).vanishes
    assert not scan([1e-12, 1]).vanishes


def test_the_consumers_and_their_modules_are_named():
    model = model_with(np.array([1e6], np.float32), "[m] y = Mul(x, w)")
    model.graph[0].metadata_props["convkit.module"] = "scale"
    (found,) = scan_constants(model, "float16")
    (consumer,) = found.consumers
    assert (consumer.op, consumer.node, consumer.module) == ("Mul", "m", "scale")


def test_constants_of_modules_kept_in_float32_are_left_alone():
    model = model_with(np.array([1e6], np.float32), "a = Mul(x, w)\n y = Add(a, w)")
    for node, module in zip(model.graph, ("kept", "low"), strict=True):
        node.metadata_props["convkit.module"] = module
    (found,) = scan_constants(model, "float16", assign(model, PrecisionPlan("float16", ("kept",))))
    assert [consumer.module for consumer in found.consumers] == ["low"]
    assert scan_constants(model, "float16", assign(model, PrecisionPlan("float16", ("**",)))) == ()


@pytest.mark.parametrize(
    "body",
    [
        "c = Constant<value_float = -1e9>()\n y = Add(x, c)",
        "c = Constant<value = float[1] {-1e9}>()\n y = Add(x, c)",
        "s = Shape(x)\n c = ConstantOfShape<value = float[1] {-1e9}>(s)\n y = Add(x, c)",
    ],
)
def test_constants_inside_nodes_are_found(body):
    (found,) = scan_constants(model_with(np.ones(1, np.float32), body), "float16")
    assert (found.constant, found.issue, found.largest) == ("c", "mask", 1e9)


def test_constants_of_subgraphs_are_found():
    text = """<ir_version: 9, opset_import: ["": 18]> g (bool c, float[N] x) => (float[N] y) {
        y = If (c) <then_branch = t () => (float[N] p) { k = Constant<value_float = 7e4>()
                                                         p = Mul(x, k) },
                    else_branch = e () => (float[N] q) { q = Neg(x) }>
    }"""
    (found,) = scan_constants(prepare(ir.from_onnx_text(text)), "float16")
    assert found.constant == "k"


def test_a_large_constant_is_counted_across_chunks():
    values = np.ones(200_000, np.float32)
    values[::1000] = 1e-9
    values[1::1000] = 1e6
    found = scan(values, body="y = Div(x, w)")
    assert (found.flushed, found.overflowing, found.elements) == (200, 200, 200_000)


@given(
    arrays.arrays(np.float32, st.integers(1, 20), elements=st.floats(width=32)),
    st.sampled_from(["float16", "bfloat16"]),
)
def test_the_counts_are_those_of_rounding_itself(values, dtype):
    rounded = round_array(values, dtype).astype(np.float32)
    overflowing = int((np.isfinite(values) & np.isinf(rounded)).sum())
    flushed = int(((values != 0) & (rounded == 0)).sum())
    found = scan(values, dtype)
    assert (
        (found.overflowing, found.flushed) == (overflowing, flushed)
        if found
        else overflowing == flushed == 0
    )


def test_the_limits_are_those_of_the_types():
    for name, info in (
        ("float16", np.finfo(np.float16)),
        ("bfloat16", ml_dtypes.finfo(ml_dtypes.bfloat16)),
    ):
        assert LIMITS[name].largest == float(info.max)
        assert LIMITS[name].smallest_normal == float(info.smallest_normal)
        assert LIMITS[name].vanishes_up_to == float(info.smallest_subnormal) / 2
