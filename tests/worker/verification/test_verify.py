import dataclasses
import math
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from small_graphs import CONTRACT, HEADER, SIGNATURE, body, graph, save, tensor
from verified_graphs import make_reference, probe, run

from convkit.protocol.contract import Contract
from convkit.protocol.messages import Fallback
from convkit.runtimes.onnxruntime import verify
from convkit.worker.job_context import StageFailedError, StageSkippedError
from convkit.worker.verification import model_verification


def test_the_same_model_matches_everywhere(original):
    result, findings = run(original, graph())
    assert findings == []
    assert result.evidence == "device"
    assert result.providers == ("CPUExecutionProvider",)
    cases = [case.case for case in result.cases if not case.case.startswith(("sizes:", "sweep:"))]
    assert cases == [
        "smallest",
        "typical",
        "padded",
        "ragged",
        "largest",
        "masked-row",
        "off-typical",
        "mask-patterns",
        *("plain-rows", "plain-rows:zeros", "plain-rows:huge"),
        "extreme",
    ]
    for case in result.cases:
        assert case.error is None
        (metrics,) = case.outputs
        assert (metrics.output, metrics.max_abs, metrics.mismatch) == ("score", 0.0, None)
        assert metrics.elements > 0
        assert case.seconds > 0
    for measured in result.probes:
        assert measured.base_error == 0.0
        assert measured.moved_reference == measured.moved_candidate > 0.0
        assert measured.moved_share is not None
        assert 0.0 < measured.moved_share < math.inf
        assert measured.matches_base == measured.matches_probe == measured.moved_reference


def test_exchanged_inputs_match_when_crossed(original):
    result, findings = run(original, graph(nodes=body(mask="types", types="mask")))
    assert [finding.code for finding in findings] == [
        "N402"
    ]  # names, types and shapes are right: only the values tell
    assert result.cases[1].outputs[0].max_abs > 0
    crossed = probe(result, "crossed:mask:types")
    assert crossed.base_error > 1
    assert crossed.matches_base == 0.0
    assert probe(result, "crossed:ids:mask").matches_base > 1


def test_merged_inputs_match_when_merged(original):
    result, _ = run(original, graph(nodes=body(types="mask")))
    merged = probe(result, "merged:mask:types")
    assert merged.base_error > 1
    assert merged.matches_probe == 0.0
    assert merged.moved_reference > 1
    assert probe(result, "merged:types:mask").matches_probe > 1


def test_a_dead_input_moves_nothing(original):
    nodes = body().replace("t = Cast<to=1>(types)", "z = Sub(types, types) t = Cast<to=1>(z)")
    result, _ = run(original, graph(nodes=nodes))
    dead = probe(result, "perturbed:types")
    assert dead.moved_candidate == 0.0
    assert dead.moved_reference > 1
    assert probe(result, "perturbed:ids").moved_candidate > 1


def test_a_shape_fixed_inside_the_graph_fails_other_cases_only(original):
    nodes = body().replace(
        "score = Mul(sum, m)",
        "p = Mul(sum, m) shape = Constant<value_ints=[2, 6]>() fixed = Reshape(p, shape) "
        "free = Shape(ids) score = Reshape(fixed, free)",
    )
    result, findings = run(original, graph(nodes=nodes))
    # The graph still says that it is symbolic: running it at another size shows otherwise.
    assert [finding.code for finding in findings] == ["C106", "C106"]
    errors = {case.case: case.error for case in result.cases}
    assert errors["typical"] is None
    assert errors["padded"] is None
    for name in ("smallest", "largest", "off-typical", "ragged", "mask-patterns"):
        assert "Reshape" in errors[name]
    assert {case.outputs for case in result.cases if case.error} == {()}
    assert all(
        measured.base_error is None for measured in result.probes
    )  # the base case failed too


def test_a_fixed_shape_that_the_runtime_infers_is_found_in_the_session(original):
    nodes = body().replace(
        "score = Mul(sum, m)",
        "p = Mul(sum, m) shape = Constant<value_ints=[2, 6]>() score = Reshape(p, shape)",
    )
    _, findings = run(original, graph(nodes=nodes))
    assert [finding.code for finding in findings] == ["C206", "C206", "C106", "C106"]


def test_nan_in_the_built_model_is_counted(original):
    nodes = body().replace(
        "score = Mul(sum, m)",
        "axis = Constant<value_ints=[1]>() n = ReduceSum(m, axis) p = Mul(sum, m) "
        "share = Div(n, n) score = Mul(p, share)",  # 0 / 0 in a masked row
    )
    result, _ = run(original, graph(nodes=nodes))
    metrics = {case.case: case.outputs[0] for case in result.cases}
    assert metrics["typical"].nan_candidate == 0
    assert metrics["masked-row"].nan_candidate == 6
    assert metrics["masked-row"].nan_reference == 0


def off(where):
    """Return the graph with 0.5 added where an expression of the mask `m` is 1."""
    nodes = body().replace(
        "score = Mul(sum, m)",
        f"one = Constant<value_float=1.0>() half = Constant<value_float=0.5>() w = {where}"
        " e = Mul(w, half) product = Mul(sum, m) score = Add(product, e)",
    )
    return graph(nodes=nodes)


def test_an_output_that_differs_most_at_padding_is_measured_without_it(original):
    result, _ = run(original, off("Sub(one, m)"))
    cases = {case.case: case for case in result.cases}
    assert cases["padded"].outputs[0].max_abs == 0.5
    (unpadded,) = cases["padded"].unpadded
    assert (unpadded.mask, unpadded.metrics.output, unpadded.metrics.max_abs) == (
        "mask",
        "score",
        0,
    )
    assert unpadded.metrics.elements < cases["padded"].outputs[0].elements
    assert cases["typical"].unpadded == ()
    row = cases["masked-row"]  # a row without any live position is not padding
    assert row.outputs[0].max_abs == 0.5
    assert not row.unpadded or row.unpadded[0].metrics.max_abs == 0.5


def test_an_output_that_differs_at_real_positions_is_measured_once(original):
    result, _ = run(original, off("Mul(one, m)"))
    assert [case.unpadded for case in result.cases] == [()] * len(result.cases)


def test_an_output_with_a_mask_of_its_own_is_measured_once(original):
    masked = dataclasses.replace(CONTRACT.outputs[0], mask="mask")
    contract = dataclasses.replace(CONTRACT, outputs=(masked,))
    result, _ = run(original, off("Sub(one, m)"), contract=contract)
    assert [case.unpadded for case in result.cases] == [()] * len(result.cases)


def test_the_sessions_contract_is_checked(original):
    signature = SIGNATURE.replace(" types", " segments")
    result, findings = run(original, graph(signature, body(types="segments")))
    assert [finding.code for finding in findings] == ["C104"]
    assert "session" in findings[0].message
    assert all(case.error for case in result.cases)


def test_a_lost_input_still_lets_the_rest_be_measured(original):
    signature = "(int64[batch,sequence] ids, int64[batch,sequence] mask)"
    nodes = body(types="mask").replace(
        "t = Cast<to=1>(mask)", "z = Sub(mask, mask) t = Cast<to=1>(z)"
    )
    result, findings = run(original, graph(signature, nodes))
    assert [finding.code for finding in findings] == ["C101", "N402"]
    assert all(case.error is None for case in result.cases)
    assert probe(result, "perturbed:types").moved_candidate == 0.0


def test_a_renamed_output_is_not_compared(original):
    text = graph(outputs="float[batch,sequence] points", nodes=body().replace("score", "points"))
    result, findings = run(original, text)
    assert [finding.code for finding in findings] == ["C204"]
    assert all(case.outputs == () for case in result.cases)


def test_another_dtype_is_a_mismatch(original):
    text = graph(
        outputs="double[batch,sequence] score",
        nodes=body().replace("score = Mul(sum, m)", "p = Mul(sum, m) score = Cast<to=11>(p)"),
    )
    result, findings = run(original, text)
    assert [finding.code for finding in findings] == ["C205"]
    assert result.cases[0].outputs[0].mismatch == "dtype float64; the original's is float32"


def test_a_model_that_the_runtime_refuses(original):
    result, findings = run(
        original, graph(nodes=body().replace("Mul(sum, m)", "NoSuchOperator(sum, m)"))
    )
    assert [finding.code for finding in findings] == ["E205"]
    assert result.cases == ()
    assert result.session == Contract((), (), ())
    assert {case.reason for case in result.omitted} == {"the runtime refused the model"}


def test_an_absent_device_is_skipped(original):
    with pytest.raises(StageSkippedError, match="convkit run RECIPE --only TARGET"):
        run(original, graph(), device="cuda")


def test_the_budget_is_kept_here_too(original):
    result, _ = run(original, graph(), budget=1e-9)
    assert [case.case for case in result.cases] == ["smallest", "padded", "masked-row"]
    invariance = {f"invariance:{name}" for name in ("again", "alone", "padded", "masked-values")}
    ladder = {"typical", "ragged", "largest", "off-typical", "mask-patterns", "extreme"}
    ladder |= {"plain-rows", "plain-rows:zeros", "plain-rows:huge"}
    omitted = {case.name for case in result.omitted}
    assert {
        name for name in omitted if not name.startswith(("sizes:", "sweep:"))
    } == ladder | invariance
    assert all("verify.budget" in case.reason for case in result.omitted)
    assert result.probes


def test_without_a_reference_nothing_is_said(tmp_path):
    with pytest.raises(StageFailedError, match="holds no reference"):
        run(tmp_path, graph())


def test_exchanged_inputs_that_the_original_refuses_crossed(tmp_path):
    nodes = """{
        table = Constant<value_floats=[0.0, 100.0]>()
        t = Gather(table, types) i = Cast<to=1>(ids) m = Cast<to=1>(mask)
        sum = Add(i, t) score = Mul(sum, m)
    }"""
    original = make_reference(tmp_path, graph(nodes=nodes))
    exchanged = nodes.replace("Gather(table, types)", "Gather(table, ids)").replace(
        "Cast<to=1>(ids)", "Cast<to=1>(types)"
    )
    result, _ = run(original, graph(nodes=exchanged))
    crossed = probe(result, "crossed:ids:types")
    assert (crossed.moved_reference, crossed.matches_probe) == (None, None)
    assert crossed.matches_base == 0.0  # right when exchanged, where the original itself refuses
    assert crossed.base_error is None  # as declared, the built model refuses


def test_fallbacks_become_warnings():
    nodes = tuple(f"node_{i} (Shape)" for i in range(7))
    finding = model_verification._fallback_finding(
        Fallback("CPUExecutionProvider", nodes), "CUDAExecutionProvider"
    )
    assert (finding.code, finding.severity) == ("E102", "warning")
    assert finding.message.startswith(
        "7 nodes ran on CPUExecutionProvider instead of CUDAExecutionProvider: node_0"
    )
    assert finding.message.endswith(", ...")


@pytest.mark.thorough
def test_large_outputs_are_compared_from_the_file(tmp_path):
    """The reference's 16 MiB never enter memory as a whole: peak memory grows by the built model's
    output only.
    """
    axes = (dataclasses.replace(CONTRACT.axes[0], min=1, typical=1, max=1), CONTRACT.axes[1])
    contract = Contract(
        (tensor("x", shape=("batch",)),), (tensor("y", shape=("batch", 2048, 2048)),), axes
    )
    text = (
        f"{HEADER}g (float[batch] x) => (float[batch,2048,2048] y) {{ "
        "shape = Constant<value_ints=[1, 2048, 2048]>() y = Expand(x, shape) }"
    )
    original = make_reference(tmp_path, text, contract, {})
    tracemalloc.start()
    result, _ = run(original, text, contract=contract)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert result.cases[0].outputs[0].elements == 2048 * 2048
    assert result.cases[0].outputs[0].max_abs == 0.0
    assert peak < 12 * 2**20  # chunks; onnxruntime's own output is not numpy's memory


@pytest.mark.slow
def test_a_worker_with_numpy_and_onnxruntime_only(original, tmp_path):
    """Verify imports nothing else: every other stage library is made unimportable."""
    model = save(original.parent / "built", graph())
    code = f"""
import sys
for name in ("torch", "onnx", "onnx_ir", "onnxscript", "transformers", "ml_dtypes", "pydantic",
             "yaml", "safetensors"):
    sys.modules[name] = None
from pathlib import Path
from small_graphs_contract import CONTRACT
from convkit.worker.job_context import Context
from convkit.protocol.messages import VerifyRequest
from convkit.runtimes.onnxruntime import verify
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
request = VerifyRequest(
    CONTRACT, OnnxRuntimeOptions(), None, "cpu", {str(model)!r}, {str(original)!r}, None
)
result, findings = verify.run(request, Context(Path({str(tmp_path)!r})))
assert not findings, findings
assert len([case for case in result.cases if not case.case.startswith("sweep:")]) == 15
assert all(case.outputs[0].max_abs == 0.0 for case in result.cases)
"""
    contract = f"from convkit.protocol.contract import *\nCONTRACT = {CONTRACT!r}\n"
    (tmp_path / "small_graphs_contract.py").write_text(contract)
    package = str(Path(verify.__file__).parents[2].parent)
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}:{package}"}
    ended = subprocess.run([sys.executable, "-c", code], check=False, env=environment)
    assert ended.returncode == 0


def test_outputs_that_change_with_values_only_count_as_numbers(original):
    nodes = body().replace(
        "score = Mul(sum, m)",
        "p = Mul(sum, m) half = Constant<value_float=0.5>() score = Add(p, half)",
    )
    result, _ = run(original, graph(nodes=nodes))
    metrics = result.cases[1].outputs[0]
    assert metrics.max_abs == metrics.mean_abs == metrics.rms == 0.5
    np.testing.assert_allclose(metrics.frontier[-1][1], 0.5)
