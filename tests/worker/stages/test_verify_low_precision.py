"""Verification of low precisions: simulated, on a device, or read without opening the graph."""

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
from small_graphs import CONTRACT, body, graph, save
from small_models import layers, write
from stage_requests import build_request, verify_request
from tiny_models import tensor
from verified_graphs import make_reference

from convkit.protocol.contract import Axis, Contract
from convkit.protocol.messages import ReferenceRequest, Sample, Source, is_of_sweep
from convkit.runtimes.onnxruntime import build, verify
from convkit.runtimes.onnxruntime import session as onnxruntime
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.worker.cases.case_files import read_tensors
from convkit.worker.job_context import Context, StageSkippedError
from convkit.worker.precision.quantization import switched_quantization
from convkit.worker.stages import graph_build as build_graph
from convkit.worker.stages.reference import run as run_reference


def lower(original, text):
    """Build a graph in float16; return the request that verifies it."""
    exported = save(original.parent / "exported", text).parent
    output = original.parent / "lowered"
    output.mkdir()
    build.run(build_request(exported, low="float16"), Context(output))
    return verify_request(output, original, low="float16", exported=str(exported))


def test_a_low_precision_is_simulated_and_its_rounding_seen(original):
    result, findings = verify.run(lower(original, graph()), Context(original.parent))
    assert (result.evidence, findings) == ("simulated", [])
    assert result.session.outputs == CONTRACT.outputs
    others = [case for case in result.cases if not is_of_sweep(case.case)]
    assert len(others) == 14  # all but one huge value
    assert all(
        case.outputs[0].max_abs == 0 for case in result.cases
    )  # whole numbers below 2048 are exact


def test_what_the_cpu_would_hide_is_found(tmp_path):
    """ids * 1e5 / 1e5: onnxruntime's CPU computes the product in float32, against the graph."""
    nodes = body().replace(
        "sum = Add(i, scaled)", "g = Constant<value_float=50000.0>()\n sum = Mul(Add(i, scaled), g)"
    )
    nodes = nodes.replace(
        "sum = Mul(Add(i, scaled), g)", "s = Add(i, scaled)\n l = Mul(s, g)\n sum = Div(l, g)"
    )
    original = make_reference(tmp_path, graph(nodes=nodes))
    request = lower(original, graph(nodes=nodes))
    result, findings = verify.run(request, Context(tmp_path))
    assert [finding.code for finding in findings] == ["N202"]
    assert findings[0].place.tensor == "l"
    assert any(
        case.outputs[0].nan_candidate or case.outputs[0].inf_mismatched for case in result.cases
    )
    plain = onnxruntime.open(Path(request.built) / "model.onnx", "cpu", OnnxRuntimeOptions())
    for case in (
        each
        for each in result.cases
        if each.outputs[0].nan_candidate or each.outputs[0].inf_mismatched
    ):
        feeds = read_tensors(Path(request.reference), case.case, "inputs", CONTRACT.inputs)
        assert np.isfinite(plain.run(feeds)[CONTRACT.outputs[0].name]).all()


WIDE = Contract((tensor("x", "rows", 32),), (tensor("y", "rows", 32),), (Axis("rows", 1, 2, 4),))


@pytest.mark.parametrize(("memory", "code"), [(None, "Q102"), (1000, "Q111")])
def test_the_modules_that_cost_most_are_named_if_the_memory_suffices(
    tmp_path, monkeypatch, memory, code
):
    model = layers()
    for weight in model.graph.initializer:  # one hidden value is large, and hardly read
        values = onnx.numpy_helper.to_array(weight).copy()
        if weight.name == "W1":
            values[:, 0] *= 1000
        elif weight.name == "W2":
            values[0] /= 1000
        weight.CopyFrom(onnx.numpy_helper.from_array(values, weight.name))
    exported = write(model, tmp_path / "exported").parent
    reference, built = tmp_path / "reference", tmp_path / "built"
    for folder in (reference, built):
        folder.mkdir()
    source = Source("onnx", path=str(exported / "model.onnx"))
    samples = {"x": Sample("normal", (0.0, 1.0))}
    run_reference(ReferenceRequest(source, WIDE, samples, 0, (), None, ()), Context(reference))
    low = {"quantize": "dynamic-int8", "per_channel": False}
    build.run(build_request(exported, contract=WIDE, low=low), Context(built))
    if memory is not None:
        monkeypatch.setattr(switched_quantization, "available_memory", lambda: memory)
    asked = verify_request(built, reference, contract=WIDE, low=low, exported=str(exported))
    result, findings = verify.run(asked, Context(tmp_path))
    (finding,) = (each for each in findings if each.code in ("Q102", "Q111"))
    assert finding.code == code
    assert finding.place.case in {case.case for case in result.cases}
    assert result.cases, "the verification itself needs no such memory"


def test_a_low_precision_on_an_absent_device_is_skipped(original):
    request = dataclasses.replace(lower(original, graph()), device="cuda")
    with pytest.raises(StageSkippedError, match="CUDAExecutionProvider"):
        verify.run(request, Context(original.parent))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_simulation_stands_in_for_an_absent_device_also_without_kernels_here(
    original, tmp_path, dtype
):
    exported, built = save(tmp_path / "exported", graph()).parent, tmp_path / "built"
    built.mkdir()
    asked = build_request(exported, device="cuda", low=dtype, stand_in=True)
    _, build_findings = build.run(asked, Context(built))
    others = {"exported": str(exported), "stand_in": True}
    request = verify_request(built, original, device="cuda", low=dtype, **others)
    result, findings = verify.run(request, Context(tmp_path))
    assert [*build_findings, *findings] == []
    assert result.evidence == "simulated"
    assert result.session.outputs == CONTRACT.outputs
    others = [case for case in result.cases if not is_of_sweep(case.case)]
    assert len(others) == 14  # all but one huge value


def test_a_low_precision_is_simulated_beside_its_device_here_mocked_by_the_cpu(
    original, monkeypatch
):
    from convkit.runtimes.onnxruntime import session as onnxruntime

    monkeypatch.setitem(onnxruntime.PROVIDERS, "cuda", "CPUExecutionProvider")
    request = dataclasses.replace(lower(original, graph()), device="cuda")
    result, _ = verify.run(request, Context(original.parent))
    assert result.evidence == "device"
    assert [pair.simulation.case for pair in result.simulated] == [
        case.case for case in result.cases
    ]
    assert all(pair.agreement.outputs[0].max_abs == 0 for pair in result.simulated)


def test_a_graph_of_very_many_low_nodes_is_read_and_not_opened(original, tmp_path, monkeypatch):
    """Opening it takes onnxruntime minutes; what is found must be the same."""
    request = lower(original, graph())
    built = Path(request.built)
    opened = []

    def watched(path, *rest):
        opened.append(Path(path).parent)
        return open_session(path, *rest)

    open_session = onnxruntime.open
    monkeypatch.setattr(onnxruntime, "open", watched)
    expected, findings = verify.run(request, Context(tmp_path))
    assert built in opened
    opened.clear()
    monkeypatch.setattr(build_graph, "_MOST_LOW_NODES", 1)
    result, again = verify.run(request, Context(tmp_path))
    output = tmp_path / "again"
    output.mkdir()
    made, _ = build.run(build_request(original.parent / "exported", low="float16"), Context(output))
    assert not {built, output} & set(opened)
    assert again == findings
    assert result.session == expected.session == made.session
    assert [case.outputs for case in result.cases] == [case.outputs for case in expected.cases]
