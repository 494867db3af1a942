import numpy as np
import onnx_ir as ir
import pytest

from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.diagnosis.rounding_growth import simulate_with_errors
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign


def errors(body, x, constants="", keep=(), modules=(), header="float[N, 2] x", **feeds):
    weights = f"<{constants}>" if constants else ""
    text = (
        f'<ir_version: 9, opset_import: ["": 18]> g ({header}) => (float[N, 2] y) {weights} {{'
        f" {body} }}"
    )
    model = prepare(ir.from_onnx_text(text))
    for node, module in zip(model.graph, modules, strict=False):
        node.metadata_props["convkit.module"] = module
    cases = {"case": {"x": np.array(x, np.float32)} | feeds}
    assignment = assign(model, PrecisionPlan("float16", keep))
    found = simulate_with_errors(model, assignment, cases, threads=1)
    return {error.tensor: error for error in found}


def test_each_tensor_is_set_beside_its_float32_self():
    found = errors(
        "[m] a = Mul(x, w)\n y = Exp(a)", [[1, -3]], "float w = {0.1}", modules=("scale", "scale")
    )
    assert list(found) == ["a", "y"]
    rounded = (np.float16(0.1) * np.array([1, -3], np.float16)).astype(np.float32)
    assert (
        found["a"].error == np.abs(rounded - np.float32(0.1) * np.array([1, -3], np.float32)).max()
    )
    assert found["a"].reference == pytest.approx(0.3)
    assert (found["a"].node, found["a"].op, found["a"].module, found["a"].dtype) == (
        "m",
        "Mul",
        "scale",
        "float16",
    )
    assert found["a"].relative_error == pytest.approx(found["a"].error / 0.3)


def test_what_is_kept_in_float32_carries_only_the_error_it_was_given():
    found = errors("a = Mul(x, w)\n y = Neg(a)", [[0.1, 0.3]], "float w = {0.1}", keep=("**",))
    assert [(error.error, error.dtype) for error in found.values()] == [(0, "float32")] * 2


def test_overflow_is_counted_where_it_arises_and_where_it_ends():
    found = errors("a = Mul(x, x)\n b = Reciprocal(a)\n y = Add(b, x)", [[300, 2], [1, 3]])
    assert (found["a"].nonfinite_reference, found["a"].nonfinite_simulated) == (0, 1)
    assert found["a"].simulated == 9  # over finite elements
    assert (found["y"].nonfinite_simulated, found["y"].error < 0.2) == (0, True)


def test_nan_and_infinity_of_the_reference_are_told_apart_from_the_simulations():
    found = errors("a = Log(x)\n y = Neg(a)", [[-1, 0], [1, 2]])
    assert (found["y"].nonfinite_reference, found["y"].nonfinite_simulated) == (2, 2)
    assert 0 < found["y"].error < 1e-3


def test_a_tensor_that_lost_its_variance_is_marked():
    """Squares of 1e-5 and 2e-5 both vanish."""
    found = errors("s = Mul(x, x)\n y = Neg(s)", [[1e-5, 2e-5]])
    assert found["s"].collapsed
    assert found["s"].spread_simulated == 0
    assert not errors("y = Neg(x)", [[1, 2]])["y"].collapsed


def test_a_constant_tensor_has_not_collapsed():
    assert not errors("y = Neg(x)", [[1, 1]])["y"].collapsed


def test_an_error_without_a_reference_is_infinitely_large():
    (zero,) = [errors("s = Sub(x, x)\n y = Neg(s)", [[1, 1]])["y"]]
    assert zero.relative_error == 0


def test_errors_flow_through_subgraphs():
    body = """z = If (c) <then_branch = t () => (float[N, 2] p) { p = Mul(x, w) },
                        else_branch = e () => (float[N, 2] q) { q = Neg(x) }>
              y = Mul(z, z)"""
    found = errors(
        body, [[1, 3]], "float w = {0.1}", header="bool c, float[N, 2] x", c=np.array(True)
    )
    assert list(found) == ["z", "y"]
    assert found["z"].error > 0


def test_several_cases_are_kept_apart():
    model = prepare(
        ir.from_onnx_text(
            '<ir_version: 9, opset_import: ["": 18]> g (float[N] x) => (float[N] y) { y = Mul(x,'
            " x) }"
        )
    )
    cases = {
        "fine": {"x": np.array([2], np.float32)},
        "overflowing": {"x": np.array([300, 1], np.float32)},
    }
    found = simulate_with_errors(model, assign(model, PrecisionPlan("float16")), cases)
    assert [(error.case, error.nonfinite_simulated) for error in found] == [
        ("fine", 0),
        ("overflowing", 1),
    ]


def test_the_model_itself_is_left_as_it_was():
    model = prepare(
        ir.from_onnx_text(
            '<ir_version: 9, opset_import: ["": 18]> g (float[N] x) => (float[N] y) { y = Mul(x,'
            " x) }"
        )
    )
    before = ir.to_proto(model).SerializeToString(deterministic=True)
    simulate_with_errors(
        model, assign(model, PrecisionPlan("float16")), {"c": {"x": np.ones(1, np.float32)}}
    )
    assert ir.to_proto(model).SerializeToString(deterministic=True) == before


def test_initializers_of_branches_have_float32_twins_too():
    text = """<ir_version: 9, opset_import: ["": 18]> g (bool c, float[N, 2] x) => (float[N, 2] y) {
        z = If (c) <then_branch = t () => (float[N, 2] p) <float a = {0.1}, float d = {3}> {
                        q = Mul(x, a)
                        p = Mul(q, d)
                    },
                    else_branch = e () => (float[N, 2] r) { r = Neg(x) }>
        y = Exp(z)
    }"""
    model = prepare(ir.from_onnx_text(text))
    feeds = {"x": np.array([[1, -3]], np.float32), "c": np.array(True)}
    assignment = assign(model, PrecisionPlan("float16"))
    found = simulate_with_errors(model, assignment, {"case": feeds}, threads=1)
    errors_of = {error.tensor: error.error for error in found}
    assert errors_of["y"] > 0
