import numpy as np
import onnx_ir as ir

from convkit.worker.graph.typed_graph import prepare
from convkit.worker.precision.diagnosis.overflow_origins import find_root_causes
from convkit.worker.precision.diagnosis.rounding_growth import simulate_with_errors
from convkit.worker.precision.diagnosis.unrepresentable_constants import scan_constants
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign


def root_causes(body, x, constants="", keep=(), modules=(), dtype="float16", *, absorbed=False):
    weights = f"<{constants}>" if constants else ""
    text = (
        f'<ir_version: 9, opset_import: ["": 18]> g (float[N, 2] x) => (float[N, M] y) {weights} {{'
        f" {body} }}"
    )
    model = prepare(ir.from_onnx_text(text))
    for node, module in zip(model.graph, modules, strict=False):
        node.metadata_props["convkit.module"] = module
    assignment = assign(model, PrecisionPlan(dtype, keep))
    cases = {"case": {"x": np.array(x, np.float32)}}
    errors = simulate_with_errors(model, assignment, cases, threads=1)
    return find_root_causes(
        model, dtype, errors, scan_constants(model, dtype, assignment), absorbed=absorbed
    )


def names(found):
    return [bad.error.tensor for bad in found.tensors], [scan.constant for scan in found.constants]


def test_what_ends_in_a_finite_output_is_not_to_blame():
    """A mask of -inf in a row with a live position: the softmax bears it."""
    found = root_causes("m = Add(x, mask)\n y = Softmax(m)", [[1, 2]], "float[2] mask = {0, -3e38}")
    assert (names(found), found.softmax) == (([], []), None)


def test_a_mask_is_to_blame_where_it_covers_a_row_and_the_softmax_is_named():
    found = root_causes(
        "m = Add(x, mask)\n r = Identity(m)\n y = Softmax<axis=1>(r)",
        [[1, 2]],
        "float mask = {-3e38}",
    )
    assert names(found) == ([], ["mask"])
    assert (found.softmax.error.tensor, found.softmax.input, found.softmax.axis) == ("y", "r", 1)


def test_a_mask_times_zero_is_to_blame():
    found = root_causes(
        "z = Sub(x, x)\n m = Mul(z, mask)\n y = Add(m, x)", [[1, 2]], "float mask = {-3e38}"
    )
    assert names(found) == ([], ["mask"])


def test_the_first_tensor_is_found_behind_what_follows_from_it():
    found = root_causes(
        "a = Mul(x, x)\n t = Transpose(a)\n b = Neg(t)\n y = Mul(b, small)",
        [[300, 2]],
        "float small = {1e-4}",
        modules=("layer.0.square", "layer.0", "layer.0", "layer.0.scale", "head"),
    )
    assert names(found) == (["a"], [])
    bad = found.tensors[0]
    assert (bad.overflows, bad.error.reference) == (True, 90000)
    assert bad.modules == ("layer.0.square", "layer.0", "layer.0.scale")


def test_a_harmless_overflow_beside_a_harmful_one_is_left_out():
    """1 / inf is zero: finite, and right."""
    body = "a = Mul(x, x)\n b = Reciprocal(a)\n c = Mul(a, x)\n d = Mul(c, tiny)\n y = Add(b, d)"
    assert names(root_causes(body, [[300, 2]], "float tiny = {1e-6}"))[0] == ["a"]
    assert names(root_causes("a = Mul(x, x)\n y = Reciprocal(a)", [[300, 2]])) == ([], [])


def test_a_tensor_that_overflows_at_the_border_of_a_kept_module_is_named():
    found = root_causes(
        "a = Mul(x, x)\n y = Mul(a, small)",
        [[300, 2]],
        "float small = {1e-4}",
        keep=("one",),
        modules=("one", "two"),
    )
    assert names(found) == (["a"], [])
    assert found.tensors[0].modules == ("one", "two")


def test_a_guard_that_vanished_is_found_above_the_division():
    body = "d = Sub(x, x)\n g = Add(d, eps)\n s = Sqrt(g)\n y = Div(d, s)"
    found = root_causes(body, [[1, 2]], "float eps = {1e-12}", modules=("norm",) * 4)
    assert names(found) == (["y"], [])
    bad = found.tensors[0]
    assert (bad.overflows, bad.flushed.constant, bad.modules) == (False, "eps", ("norm",))


def test_an_absorbed_overflow_is_to_blame_where_what_absorbs_it_is_off():
    """x / sqrt(x * x) is one and becomes zero; 1 / (1 + x * x) is nearly zero beside others, and
    zero will do.
    """
    norm = root_causes("a = Mul(x, x)\n s = Sqrt(a)\n y = Div(x, s)", [[300, 400]], absorbed=True)
    assert names(norm) == (["a"], [])
    gate = "a = Mul(x, x)\n b = Add(a, one)\n c = Reciprocal(b)\n y = Add(c, x)"
    assert names(root_causes(gate, [[300, 1]], "float one = {1}", absorbed=True)) == ([], [])


def test_an_overflow_is_found_behind_whole_numbers():
    """Infinity as int64 is a large number, and infinity again when it is cast back."""
    body = "a = Mul(x, x)\n i = Cast<to=7>(a)\n f = Cast<to=1>(i)\n y = Div(f, f)"
    found = root_causes(body, [[300, 2]])
    assert names(found) == (["a"], [])
    assert found.tensors[0].overflows


def test_what_float32_gives_too_is_not_to_blame():
    assert names(root_causes("z = Sub(x, x)\n y = Div(x, z)", [[1, 2]])) == ([], [])


def test_bfloat16_has_float32_s_range():
    assert names(root_causes("a = Mul(x, x)\n y = Mul(a, a)", [[3000, 2]], dtype="bfloat16")) == (
        [],
        [],
    )
