import subprocess
import sys

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from convkit.worker.precision.value_ranges import instrument_ranges, run_ranges


def write(tmp_path, body, header="float[N, 2] x", result="float[N, 2] y", constants="", opset=18):
    weights = f"<{constants}>" if constants else ""
    versions = f'<ir_version: 9, opset_import: ["": {opset}]>'
    text = f"{versions} g ({header}) => ({result}) {weights} {{ {body} }}"
    ir.save(ir.from_onnx_text(text), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def ranges(path, **cases):
    report = run_ranges(
        path, {name: {"x": np.array(x, np.float32)} for name, x in cases.items()}, threads=1
    )
    return {tensor.tensor: tensor for tensor in report.tensors}


def test_the_largest_magnitude_of_every_tensor_is_found_over_all_cases(tmp_path):
    path = write(tmp_path, "[exp] e = Exp(x)\n n = Neg(e)\n y = Mul(n, n)")
    found = ranges(path, small=[[0, 1]], large=[[-9, 2]])
    assert found["x"].largest == 9
    assert found["x"].op == "input"
    assert found["e"].largest == pytest.approx(np.exp(2))
    assert found["y"].largest == pytest.approx(np.exp(4))
    assert {found[name].case for name in "xeny"} == {"large"}
    assert (found["e"].node, found["e"].op) == ("exp", "Exp")


def test_headroom_says_how_far_overflow_is(tmp_path):
    path = write(tmp_path, "a = Mul(x, x)\n y = Neg(a)")
    found = ranges(path, case=[[256, 1]])
    assert found["x"].headroom() == 65504 / 256
    assert found["a"].headroom() < 1
    assert found["a"].headroom("bfloat16") > 1e30


def test_modules_are_ranked_by_headroom(tmp_path):
    path = write(tmp_path, "a = Mul(x, x)\n y = Neg(x)")
    model = ir.load(path)
    for node, module in zip(model.graph, ("square", "negate"), strict=True):
        node.metadata_props["convkit.module"] = module
    ir.save(model, path)
    report = run_ranges(path, {"case": {"x": np.array([[100, 1]], np.float32)}})
    assert [(row.module, row.tensor) for row in report.by_module()] == [
        ("square", "a"),
        ("", "x"),
        ("negate", "y"),
    ]


@pytest.mark.parametrize("sign", [-1, 1])
def test_a_mask_does_not_hide_what_it_masks(tmp_path, sign):
    constants = (
        f"float lowest = {{{sign * 3.4028234663852886e38:.9e}}}, float zero = {{0}}".replace(
            "e+", "e"
        )
    )
    body = "b = IsNaN(x)\n m = Where(b, zero, lowest)\n c = Concat<axis = 0>(x, m)\n y = Add(c, c)"
    path = write(tmp_path, body, result="float[P, 2] y", constants=constants)
    found = ranges(path, case=[[100, -100]])
    assert found["c"].masked
    assert not found["x"].masked
    assert found["c"].headroom() < 1
    assert found["c"].unmasked_headroom() == 65504 / 100
    assert not found["y"].masked  # twice the mask overflows float32 itself: finite elements remain


def test_moved_values_take_over_their_sources_range(tmp_path):
    path = write(tmp_path, "t = Transpose(x)\n s = Constant<value = int64[1] {-1}>()\n"
                 " r = Reshape(t, s)\n y = Neg(r)", result="float[M] y")  # fmt: skip
    instrumented = instrument_ranges(ir.load(path))
    (keys,) = instrumented.layout.outputs.values()
    assert {name for name, _ in keys} == {"x", "y"}
    found = ranges(path, case=[[3, -4]])
    assert [found[name].largest for name in ("x", "t", "r", "y")] == [4, 4, 4, 4]


@pytest.mark.parametrize("opset", [9, 18])
@pytest.mark.parametrize(
    "body", ["y = Div(x, d)", "r = Log(d)\n y = Add(x, r)", "r = Sqrt(d)\n y = Add(x, r)"]
)
def test_the_smallest_magnitude_is_measured_where_it_matters(tmp_path, body, opset):
    path = write(tmp_path, f"d = Abs(x)\n {body}", opset=opset)
    assert ranges(path, case=[[0, -1e-9]])["d"].smallest == pytest.approx(1e-9)
    assert ranges(path, case=[[0, 0]])["d"].smallest is None


def test_a_vanishing_denominator_is_seen_through_a_reshape(tmp_path):
    path = write(tmp_path, "s = Shape(x)\n d = Neg(x)\n r = Reshape(d, s)\n y = Div(x, r)")
    assert ranges(path, case=[[2, -1e-9]])["d"].smallest == pytest.approx(1e-9)


def test_the_smallest_magnitude_of_a_tensor_of_one_sign_is_known_anyhow(tmp_path):
    found = ranges(write(tmp_path, "e = Exp(x)\n y = Neg(e)"), case=[[0, 1]], other=[[-1, 2]])
    assert found["e"].smallest == found["y"].smallest == pytest.approx(np.exp(-1))
    assert found["x"].smallest is None


def test_the_rms_epsilon_that_float16_flushes_is_in_the_report(tmp_path):
    path = write(
        tmp_path,
        "s = Mul(x, x)\n e = Add(s, eps)\n r = Sqrt(e)\n y = Div(x, r)",
        constants="float eps = {1e-12}",
    )
    assert ranges(path, case=[[0, 1e-5]])["e"].smallest < 2.0**-25


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_non_finite_elements_are_counted_and_the_finite_ones_measured(tmp_path, bad):
    path = write(tmp_path, "a = Neg(x)\n y = Abs(a)")
    x = np.linspace(-5, 4, 40).reshape(20, 2)
    x[3, 0] = x[7, 1] = x[19, 1] = bad
    found = ranges(path, fine=[[1, 2]], bad=x)
    assert (found["a"].nonfinite, found["a"].largest) == (3, 5)
    assert found["a"].case == "bad"


def test_a_sum_that_overflows_float32_is_no_alarm(tmp_path):
    found = ranges(write(tmp_path, "y = Neg(x)"), case=[[3e38, 3e38]])
    assert (found["y"].nonfinite, found["y"].largest) == (0, np.float32(3e38))


def test_an_empty_tensor_is_measured_as_nothing(tmp_path):
    found = ranges(write(tmp_path, "y = Neg(x)"), empty=np.zeros((0, 2)))
    assert (found["y"].largest, found["y"].nonfinite, found["y"].headroom()) == (0, 0, np.inf)


def test_constants_are_left_to_the_scan_of_constants(tmp_path):
    path = write(
        tmp_path, "c = Constant<value_float = 1e9>()\n y = Add(x, c)", constants="float w = {1}"
    )
    assert set(ranges(path, case=[[1, 2]])) == {"x", "y"}


BRANCHES = """z = If (c) <then_branch = t () => (float[N, 2] p) { p = Exp(x) },
                          else_branch = e () => (float[N, 2] q) { k = Neg(x)
                                                                  q = Mul(k, k) }>
              y = Neg(z)"""


def test_only_the_branch_that_ran_is_measured(tmp_path):
    path = write(tmp_path, BRANCHES, header="bool c, float[N, 2] x")
    x = np.array([[1, -3]], np.float32)

    def run(*choices):
        report = run_ranges(
            path, {str(choice): {"c": np.array(choice), "x": x} for choice in choices}
        )
        return {tensor.tensor: tensor.largest for tensor in report.tensors}

    assert {"p"} == set(run(True)) - {"x", "y", "z"}
    assert {"k", "q"} == set(run(False)) - {"x", "y", "z"}
    assert run(True, False)["q"] == 9
    assert run(False)["z"] == 9


LOOP = """n = Constant<value = int64 {3}>()
    t = Constant<value = bool {1}>()
    last = Loop (n, t, x) <body = body (int64 i, bool go, float[N, 2] h)
        => (bool on, float[N, 2] g) {
        on = Identity(go)
        g = Add(h, h)
    }>
    y = Neg(last)"""


def test_every_iteration_of_a_loop_counts(tmp_path):
    found = ranges(write(tmp_path, LOOP), case=[[1, -1.5]])
    assert [found[name].largest for name in ("x", "h", "g", "y")] == [1.5, 6, 12, 12]


def test_a_loop_that_does_not_run_has_no_ranges(tmp_path):
    found = ranges(write(tmp_path, LOOP.replace("{3}", "{0}")), case=[[1, -1.5]])
    assert set(found) == {"x", "last", "y"}


def test_a_scan_is_measured_row_by_row(tmp_path):
    body = """last, rows = Scan <num_scan_inputs = 1,
        body = body (float[2] h, float[2] r) => (float[2] g, float[2] o) {
            g = Add(h, r)
            o = Mul(g, r)
        }> (start, x)
        y = Neg(rows)"""
    found = ranges(
        write(tmp_path, body, constants="float[2] start = {0, 0}"), case=[[1, 2], [3, -8]]
    )
    assert [found[name].largest for name in "hrgo"] == [2, 8, 6, 48]


def test_a_scan_that_says_where_its_outputs_lie_gets_an_entry_for_the_measurement(tmp_path):
    body = """last, rows = Scan <num_scan_inputs = 1, scan_output_axes = [1],
        scan_output_directions = [1],
        body = body (float[2] h, float[2] r) => (float[2] g, float[2] o) {
            g = Add(h, r)
            o = Mul(g, r)
        }> (start, x)
        y = Neg(rows)"""
    path = write(tmp_path, body, constants="float[2] start = {0, 0}")
    found = ranges(path, case=[[1, 2], [3, -8]])
    assert [found[name].largest for name in "hrgo"] == [2, 8, 6, 48]


def test_a_body_inside_a_body_is_listed_as_unmeasured(tmp_path):
    inner = BRANCHES.replace("y = Neg(z)", "").replace("z = If", "w = If")
    body = f"""y = If (c) <then_branch = tt () => (float[N, 2] w) {{ {inner} }},
                           else_branch = ee () => (float[N, 2] v) {{ v = Neg(x) }}>"""
    path = write(tmp_path, body, header="bool c, float[N, 2] x")
    report = run_ranges(path, {"case": {"c": np.array(True), "x": np.ones((1, 2), np.float32)}})
    assert {tensor.tensor for tensor in report.unmeasured} == {"p", "k", "q"}
    assert {tensor.tensor for tensor in report.tensors} == {"x", "y", "w"}


def test_functions_are_measured_call_by_call(tmp_path):
    text = """<ir_version: 9, opset_import: ["": 18, "own": 1]>
    g (float[N] x) => (float[N] y) { a = own.square(x)
        y = own.square(a) }
    <domain: "own", opset_import: ["": 18]>
    square (v) => (w) { n = Neg(v)
        w = Mul(n, v) }"""
    ir.save(ir.from_onnx_text(text), tmp_path / "model.onnx")
    report = run_ranges(tmp_path / "model.onnx", {"case": {"x": np.array([3], np.float32)}})
    assert [tensor.largest for tensor in report.tensors] == [3, 3, 9, 9, 81]


def test_the_models_own_outputs_are_still_there(tmp_path):
    path = write(tmp_path, "a = Exp(x)\n y = Neg(a)")
    model = instrument_ranges(ir.load(path)).model
    onnx.checker.check_model(ir.to_proto(model), full_check=True)
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    (y,) = session.run(["y"], {"x": np.zeros((1, 2), np.float32)})
    np.testing.assert_array_equal(y, [[-1, -1]])


def test_float16_and_float64_tensors_are_measured(tmp_path):
    path = write(tmp_path, "h = Cast<to = 10>(x)\n d = Cast<to = 11>(h)\n y = Cast<to = 1>(d)")
    assert [ranges(path, case=[[1, -3]])[name].largest for name in "hdy"] == [3, 3, 3]


def test_weights_in_their_own_file_are_found(tmp_path):
    model = ir.load(write(tmp_path, "y = Mul(x, w)", constants="float[2] w = {1, 2}"))
    (tmp_path / "elsewhere").mkdir()
    ir.save(
        model,
        tmp_path / "elsewhere" / "model.onnx",
        external_data="weights",
        size_threshold_bytes=0,
    )
    assert ranges(tmp_path / "elsewhere" / "model.onnx", case=[[1, 3]])["y"].largest == 6


def test_sequences_are_passed_over(tmp_path):
    body = "a = Neg(x)\n s = SequenceConstruct(a, x)\n y = ConcatFromSequence<axis = 0>(s)"
    path = write(tmp_path, body, header="float[2] x", result="float[4] y")
    assert set(ranges(path, case=[1, 2])) == {"x", "a", "y"}


PEAK = """
import re, sys
from pathlib import Path
import numpy as np, onnx_ir as ir
from convkit.worker.precision.diagnosis.rounding_growth import simulate_with_errors
from convkit.worker.precision.value_ranges import run_ranges
from convkit.worker.precision.lowering.precision_plan import PrecisionPlan, assign
from convkit.worker.graph.typed_graph import prepare

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

def run(elements):
    cases = {"case": {"x": np.full((1, elements), 0.5, np.float32)}}
    if sys.argv[1] == "ranges":
        run_ranges(Path(sys.argv[2]), cases, threads=1)
    else:
        model = prepare(ir.load(sys.argv[2]))
        simulate_with_errors(model, assign(model, PrecisionPlan("float16")), cases, threads=1)

run(2)
before = peak()
run(1 << 20)
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="peak memory is read from /proc")
@pytest.mark.parametrize("job", ["ranges", "errors"])
def test_tensors_are_let_go_once_they_are_measured(tmp_path, job):
    """60 tensors of 4 MiB: kept to the end, they would take 240 MiB (twice that side by side)."""
    lines = [f"v{i + 1} = Mul(v{i}, v{i})\n w{i + 1} = Softmax(v{i + 1})" for i in range(30)]
    path = write(tmp_path, "v0 = Neg(x)\n" + "\n".join(lines) + "\n y = Neg(w30)")
    model = ir.load(path)
    model.graph.inputs[0].shape = model.graph.outputs[0].shape = ir.Shape([1, "N"])
    ir.save(model, path)
    answer = subprocess.run(
        [sys.executable, "-c", PEAK, job, str(path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert float(answer.stdout) < 100
