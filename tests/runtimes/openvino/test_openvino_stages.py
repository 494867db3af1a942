"""Build and verify of OpenVINO targets on small graphs: precisions, evidence, faults, refusals."""

import shutil

import numpy as np
import pytest
from ir_models import DENSE, HEADER, SAMPLES, built, dense, kernel_types, reference_of, verified
from small_graphs import save, tensor
from stage_requests import verify_request

from convkit.protocol.contract import Axis, Contract
from convkit.protocol.findings.finding import Finding
from convkit.runtimes.onnxruntime import session as onnxruntime
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.runtimes.openvino import session as openvino
from convkit.runtimes.openvino import supported_operators, verify
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.graph.graph_loading import load_model
from convkit.worker.graph.operator_probes import graph_operators
from convkit.worker.job_context import StageFailedError
from convkit.worker.metrics.tensor_metrics import compare
from convkit.worker.runtime_interface.distinct_operators import write_operators
from convkit.worker.runtime_interface.sessions import ModelRefusedError

ov = pytest.importorskip("openvino")

MIXED = {"default": "bfloat16", "keep_float32": ["second"]}
has_bfloat16 = pytest.mark.skipif(
    not openvino.can_compute("bfloat16"), reason="a CPU without bfloat16"
)
lacks_float16 = pytest.mark.skipif(
    openvino.can_compute("float16"), reason="a CPU with float16 has evidence from the device"
)


def request(folder, reference, export, low=None):
    return verify_request(
        folder,
        reference,
        contract=DENSE,
        options=OpenVINOOptions(),
        low=low,
        exported=export if low is not None else None,
    )


@pytest.fixture
def model(tmp_path):
    return dense(tmp_path / "export")


@pytest.fixture
def reference(tmp_path, model):
    return reference_of(tmp_path, model, DENSE, SAMPLES)


def largest_error(result) -> float:
    return max(output.max_abs for case in result.cases for output in case.outputs)


def test_float32_matches_on_the_device(tmp_path, model, reference):
    folder, _, findings = built(tmp_path, model)
    assert findings == []
    assert {path.name for path in folder.iterdir()} == {
        *("model.xml", "model.bin", "contract.json", "operators.json"),
        *("bindings.py", "bindings.hpp"),
    }
    result, findings = verified(tmp_path, request(folder, reference, model.parent))
    assert findings == []
    assert (result.evidence, result.providers) == ("device", ("CPU",))
    assert len(result.cases) >= 5
    assert 0 <= largest_error(result) <= 1e-5


def test_inputs_that_were_swapped_match_when_crossed(tmp_path, model, reference):
    folder, _, _ = built(tmp_path, dense(tmp_path / "swapped", swapped=True))
    result, _ = verified(tmp_path, request(folder, reference, model.parent))
    assert largest_error(result) > 0.1
    crossed = next(probe for probe in result.probes if probe.probe == "crossed:x:z")
    assert crossed.matches_base <= 1e-5 < crossed.base_error


@has_bfloat16
class TestBfloat16:
    def test_it_runs_on_the_device_near_its_simulation(self, tmp_path, model, reference):
        folder, _, findings = built(tmp_path, model, low="bfloat16")
        assert findings == []
        session = openvino.open(folder / "model.xml", "cpu", OpenVINOOptions())
        assert (session.precision, session.computes) == ("bfloat16", "bfloat16")
        types = kernel_types(session)
        assert types["node_a"] == types["node_b"] == "bf16"
        result, findings = verified(tmp_path, request(folder, reference, model.parent, "bfloat16"))
        assert result.evidence == "device"
        assert [finding for finding in findings if finding.is_error] == []
        assert 1e-4 < largest_error(result) < 0.2
        agreement = [each.agreement.outputs[0] for each in result.simulated]
        assert len(agreement) == len(result.cases)
        # Both round to eight bits of mantissa, at places that differ by the kernels' fusions.
        assert all(output.cosine >= 0.9999 for output in agreement)

    def test_kept_modules_run_in_float32_whatever_a_caller_sets(self, tmp_path, model):
        folder, _, findings = built(tmp_path, model, low=MIXED)
        assert findings == []
        types = kernel_types(openvino.open(folder / "model.xml", "cpu", OpenVINOOptions()))
        assert (types["node_a"], types["node_b"]) == ("bf16", "f32")
        default = ov.Core().compile_model(folder / "model.xml", "CPU")
        assert default.get_property("INFERENCE_PRECISION_HINT") == ov.Type.bf16
        nodes = {
            node.get_friendly_name(): node.get_rt_info()["runtimePrecision"].astype(str)
            for node in default.get_runtime_model().get_ordered_ops()
            if "runtimePrecision" in node.get_rt_info()
        }
        assert (nodes["node_a"], nodes["node_b"]) == ("bf16", "f32")

    def test_weights_have_the_plans_types(self, tmp_path, model):
        sizes = []
        for name, low in (("all", "bfloat16"), ("mixed", MIXED), ("none", None)):
            folder, _, _ = built(tmp_path, model, name=name, low=low)
            sizes.append((folder / "model.bin").stat().st_size)
        weight = 64 * 64
        assert sizes == [4 * weight, 6 * weight, 8 * weight]


# Swapped or of another sign, two inputs of zeros are the same.
BOTH_ZEROS = "plain-rows:zeros"


@lacks_float16
class TestFloat16OnACpuWithoutIt:
    def test_the_simulation_is_judged_and_the_ir_stays_near_it(self, tmp_path, model, reference):
        folder, _, _ = built(tmp_path, model, low="float16")
        session = openvino.open(folder / "model.xml", "cpu", OpenVINOOptions())
        assert (session.precision, session.computes) == ("float16", "float32")
        result, findings = verified(tmp_path, request(folder, reference, model.parent, "float16"))
        assert result.evidence == "simulated"
        assert [finding for finding in findings if finding.is_error] == []
        assert 1e-5 < largest_error(result) < 0.02

    def test_overflow_that_the_cpu_hides_is_found(self, tmp_path):
        model = dense(tmp_path / "export", scale=400.0)
        reference = reference_of(tmp_path, model, DENSE, SAMPLES)
        folder, _, _ = built(tmp_path, model, low="float16")
        feeds = {name: np.ones((1, 64), np.float32) for name in ("x", "z")}
        hidden = openvino.open(folder / "model.xml", "cpu", OpenVINOOptions()).run(feeds)["y"]
        assert np.isfinite(hidden).all()
        result, findings = verified(tmp_path, request(folder, reference, model.parent, "float16"))
        assert any(case.outputs[0].inf_mismatched for case in result.cases)
        assert any(finding.code.startswith("N20") for finding in findings)

    def test_an_ir_that_is_not_what_was_simulated_fails_its_cases(self, tmp_path, model, reference):
        other = dense(tmp_path / "swapped", swapped=True)
        folder, _, _ = built(tmp_path, other, low="float16")
        result, _ = verified(tmp_path, request(folder, reference, model.parent, "float16"))
        assert result.cases
        assert all(
            "not the graph that was simulated" in (case.error or "")
            for case in result.cases
            if case.case != BOTH_ZEROS
        )

    def test_an_ir_that_is_far_only_by_roundings_is_what_was_simulated(self, tmp_path):
        """Of 1 + 1e-3 z, float16 keeps one bit of z: the simulation is far from the float32 IR."""

        def exported(name: str, factor: float):
            text = f"""{HEADER}g (float[batch,64] x, float[batch,64] z) => (float[batch,64] y)
                <float one = {{1}}, float small = {{{factor}}}> {{
                s = Mul(z, small) t = Add(s, one) u = Sub(t, one) v = Mul(x, small) y = Add(u, v)
                }}"""
            model = save(tmp_path / name, text, carries=DENSE)
            write_operators(graph_operators(load_model(model)), model.parent)
            return model

        model = exported("export", 1e-3)
        reference = reference_of(tmp_path, model, DENSE, SAMPLES)
        folder, _, _ = built(tmp_path, model, low="float16")
        asked = request(folder, reference, model.parent, "float16")
        result, findings = verified(tmp_path, asked)
        assert {case.error for case in result.cases} == {None}
        assert [finding for finding in findings if finding.is_error] == []
        assert 1e-4 < largest_error(result) < 1e-3  # what the simulation loses, not the IR

        other, _, _ = built(tmp_path, exported("other", -1e-3), name="wrong", low="float16")
        result, _ = verified(tmp_path, request(other, reference, model.parent, "float16"))
        assert result.cases
        assert all(
            "roundings are not why" in (case.error or "")
            for case in result.cases
            if case.case != BOTH_ZEROS
        )

    def test_a_model_that_came_in_float16_is_simulated_too(self, tmp_path):
        text = f"""{HEADER}g (float[batch,64] x, float[batch,64] z) => (float[batch,64] y) {{
            h = Cast<to=10>(x) k = Cast<to=10>(z) s = Mul(h, h) t = Add(s, k)
            y = Cast<to=1>(t) }}"""
        model = save(tmp_path / "export", text, carries=DENSE)
        write_operators(graph_operators(load_model(model)), model.parent)
        reference = reference_of(tmp_path, model, DENSE, SAMPLES)
        folder, _, _ = built(tmp_path, model)
        assert (folder / openvino.GRAPH_FOLDER / "model.onnx").is_file()
        result, _ = verified(tmp_path, request(folder, reference, model.parent))
        assert result.evidence == "simulated"

    def test_without_the_tools_to_simulate_it_nothing_is_claimed(
        self, tmp_path, model, reference, monkeypatch
    ):
        text = f"""{HEADER}g (float[batch,64] x, float[batch,64] z) => (float[batch,64] y) {{
            h = Cast<to=10>(x) s = Mul(h, h) t = Cast<to=1>(s) y = Add(t, z) }}"""
        half = save(tmp_path / "half", text, carries=DENSE)
        write_operators(graph_operators(load_model(half)), half.parent)
        folder, _, _ = built(tmp_path, half)
        monkeypatch.setattr(verify.importlib.util, "find_spec", lambda _name: None)
        with pytest.raises(StageFailedError, match=r"model\.dtype: float32"):
            verified(tmp_path, request(folder, reference, half.parent))


@pytest.mark.thorough
def test_int8_runs_as_int8_with_the_cases_as_calibration(tmp_path, model, reference):
    low = {"quantize": "static-int8"}
    folder, _, findings = built(tmp_path, model, low=low, reference=str(reference))
    assert [finding for finding in findings if finding.is_error] == []
    session = openvino.open(folder / "model.xml", "cpu", OpenVINOOptions())
    whole = {name: kind for name, kind in kernel_types(session).items() if kind in ("i8", "u8")}
    assert len(whole) >= 2, kernel_types(session)
    result, findings = verified(tmp_path, request(folder, reference, model.parent, low))
    assert result.evidence == "device"
    assert largest_error(result) > 1e-4
    # onnxruntime's kernels on the same graph round alike: the error is the quantization's.
    graph = folder / openvino.GRAPH_FOLDER / "model.onnx"
    other = onnxruntime.open(graph, "cpu", OnnxRuntimeOptions())
    for case in result.cases:
        feeds = read_tensors(reference, case.case, "inputs", DENSE.inputs)
        here, there = session.run(feeds)["y"], other.run(feeds)["y"]
        assert compare("y", there, here).cosine >= 0.9999


def refusal(tmp_path, text: str) -> list[Finding]:
    model = save(tmp_path / "refused", text, carries=None)
    write_operators(graph_operators(load_model(model)), model.parent)
    contract = Contract(
        (tensor("x", shape=("n", "n")),), (tensor("y", shape=()),), (Axis("n", 2, 3, 4),)
    )
    _, _, findings = built(tmp_path, model, contract=contract)
    return findings


def test_an_operator_without_a_conversion_is_named(tmp_path):
    text = f"{HEADER}g (float[n,n] x) => (float y) {{ a = Relu(x) y = Det(a) }}"
    (finding,) = refusal(tmp_path, text)
    assert (finding.code, finding.is_error) == ("V103", True)
    assert "does not know 1 node: Det (float32 -> float32)" in finding.message
    assert finding.evidence["operators"][0]["operator"] == "Det"


def test_operands_of_several_types_are_named(tmp_path):
    model = save(
        tmp_path,
        f"{HEADER}g (float[n] x, float16[n] h) => (float[n] y) {{ y = Add(x, h) }}",
        carries=None,
    )
    (finding,) = supported_operators.check_operators(graph_operators(load_model(model)))
    assert finding.code == "T102"


def test_a_refusal_without_a_known_reason_is_the_runtimes_own(tmp_path, model):
    (tmp_path / "broken").mkdir()
    shutil.copy(model, tmp_path / "broken" / "model.onnx")
    with (tmp_path / "broken" / "model.onnx").open("r+b") as file:
        file.truncate(100)
    _, _, findings = built(tmp_path, tmp_path / "broken" / "model.onnx")
    assert [finding.code for finding in findings] == ["E205"]


def test_a_contract_that_the_ir_breaks_is_found(tmp_path, model):
    other = Contract((DENSE.inputs[1], DENSE.inputs[0]), DENSE.outputs, DENSE.axes)
    _, _, findings = built(tmp_path, model, contract=other)
    assert [finding.code for finding in findings] == ["C103"]


def test_a_release_that_computes_in_another_type_is_refused_mocked_property(
    tmp_path, model, monkeypatch
):
    """No release here ignores the hint f32, so that the answer to it is mocked."""
    folder, _, _ = built(tmp_path, model)

    class Ignoring:
        def __init__(self, compiled):
            self._compiled = compiled

        def get_property(self, name):
            assert name == "INFERENCE_PRECISION_HINT"
            return ov.Type.bf16

    class Core(ov.Core):
        def compile_model(self, *arguments):
            return Ignoring(super().compile_model(*arguments))

    monkeypatch.setattr(ov, "Core", Core)
    with pytest.raises(ModelRefusedError, match="computes in bf16; the recipe asks for f32"):
        openvino.open(folder / "model.xml", "cpu", OpenVINOOptions())


def test_estranged_compares_what_is_finite():
    one = np.linspace(-1, 1, 50, dtype=np.float32)
    assert not verify._has_diverged("y", one, one + np.float32(1e-3))
    assert verify._has_diverged("y", one, one[::-1].copy())
    assert verify._has_diverged("y", one, np.full_like(one, np.nan))
    assert verify._has_diverged("y", one, one[:-1])
    assert not verify._has_diverged("y", np.full_like(one, np.inf), one)
    assert not verify._has_diverged("y", np.zeros(0, np.float32), np.zeros(0, np.float32))
