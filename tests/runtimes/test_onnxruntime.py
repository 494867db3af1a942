import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from small_graphs import CONTRACT, HEADER, graph, save
from stage_requests import build_request

from convkit.protocol.messages import Fallback
from convkit.runtimes.onnxruntime import session as onnxruntime
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.runtimes.onnxruntime.profile import fallbacks_in_profile, read_profile
from convkit.worker.graph.graph_session import ELEMENT_TYPES
from convkit.worker.job_context import Context, StageFailedError, StageSkippedError
from convkit.worker.original.contract_check import CONTRACT_KEY, UNKNOWN_RANK
from convkit.worker.runtime_interface.sessions import ModelRefusedError, RunFailedError

FEEDS = {"types": np.array([[0, 1]]), "mask": np.array([[1, 1]]), "ids": np.array([[3, 4]])}


def test_a_session_states_contract_metadata_and_provider(tmp_path):
    session = onnxruntime.open(save(tmp_path, graph()), "cpu", OnnxRuntimeOptions())
    assert session.contract().inputs == CONTRACT.inputs
    assert session.contract().outputs == CONTRACT.outputs
    assert session.contract().axes == ()
    assert CONTRACT_KEY in session.metadata()
    assert session.providers == ("CPUExecutionProvider",)
    assert session.run(FEEDS)["score"].tolist() == [[3.0, 104.0]]
    assert session.fallbacks() == ()


def test_feeds_may_be_memory_mapped(tmp_path):
    session = onnxruntime.open(save(tmp_path, graph()), "cpu", OnnxRuntimeOptions())
    np.save(tmp_path / "ids.npy", FEEDS["ids"])
    feeds = FEEDS | {"ids": np.load(tmp_path / "ids.npy", mmap_mode="r")}
    assert session.run(feeds)["score"].tolist() == [[3.0, 104.0]]


def test_dimensions_and_ranks_that_onnxruntime_does_not_state(tmp_path):
    text = (
        f"{HEADER}g (float[?,3] x) => (float y, float[a,b] z) {{ y = ReduceSum<keepdims=0>(x) z ="
        " Identity(x) }"
    )
    contract = onnxruntime.open(save(tmp_path, text), "cpu", OnnxRuntimeOptions()).contract()
    assert contract.inputs[0].shape == ("?", 3)
    assert contract.outputs[0].shape == UNKNOWN_RANK


def test_errors_carry_the_runtimes_message(tmp_path):
    session = onnxruntime.open(save(tmp_path, graph()), "cpu", OnnxRuntimeOptions())
    with pytest.raises(RunFailedError, match="tensor\\(int64\\)"):
        session.run(FEEDS | {"ids": FEEDS["ids"].astype(np.float32)})
    assert session.run(FEEDS)["score"].shape == (1, 2)  # the session lives on
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    with pytest.raises(ModelRefusedError, match=f"onnxruntime {ort.__version__}"):
        onnxruntime.open(tmp_path / "broken.onnx", "cpu", OnnxRuntimeOptions())
    with pytest.raises(StageFailedError, match="optimization: 'fast' is none of none, basic"):
        onnxruntime.open_built(save(tmp_path, graph()), "cpu", "fast")


def test_a_newer_ir_is_refused_with_the_message(tmp_path):
    model = onnx.load(save(tmp_path, graph()))
    model.ir_version = 99
    onnx.save(model, tmp_path / "new.onnx")
    with pytest.raises(ModelRefusedError, match="99"):
        onnxruntime.open(tmp_path / "new.onnx", "cpu", OnnxRuntimeOptions())


def test_what_numpy_cannot_hold_is_named(tmp_path):
    text = f"{HEADER}g (float[n] x) => (float8e5m2[n] y) {{ y = Cast<to=19>(x) }}"
    session = onnxruntime.open(save(tmp_path, text), "cpu", OnnxRuntimeOptions())
    assert session.contract().outputs[0].dtype == "float8e5m2"
    with pytest.raises(
        RunFailedError, match=r"cannot exchange 'y' \(tensor\(float8e5m2\)\) with numpy"
    ):
        session.run({"x": np.ones(2, np.float32)})


def test_what_is_no_tensor_is_refused(tmp_path):
    text = f"{HEADER}g (float[n] x) => (seq(float[n]) y) {{ y = SequenceConstruct(x) }}"
    with pytest.raises(ModelRefusedError, match=r"'y' is a seq\(tensor\(float\)\)"):
        onnxruntime.open(save(tmp_path, text), "cpu", OnnxRuntimeOptions()).contract()


def test_every_element_type_of_onnxruntime_is_known():
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    named = {
        constraint.removeprefix("tensor(").removesuffix(")")
        for schema in state.get_all_operator_schema()
        if schema.name == "Cast" and schema.domain == ""
        for parameter in schema.type_constraints
        for constraint in parameter.allowed_type_strs
    }
    # Unsigned float8 variants, 2-bit numbers and the like are not part of a contract's words.
    assert set(ELEMENT_TYPES) <= named


def test_threads_come_from_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert onnxruntime._settings(OnnxRuntimeOptions()).intra_op_num_threads == 1
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert onnxruntime._settings(OnnxRuntimeOptions()).intra_op_num_threads == 0


def test_cuda_without_the_provider_is_skipped_with_what_to_do(tmp_path):
    if "CUDAExecutionProvider" in ort.get_available_providers():
        expected = "it started with"
    else:
        expected = "it has .*CPUExecutionProvider"
    with pytest.raises(StageSkippedError, match=f"{expected}.*convkit run RECIPE --only TARGET"):
        onnxruntime.open(save(tmp_path, graph()), "cuda", OnnxRuntimeOptions())


class SessionThatStartedOnTheCpu:
    """Stands in for a session of onnxruntime-gpu on a machine without a device, which cannot be had
    here.
    """

    def __init__(self, *_args, **_kwargs) -> None:
        pass

    def get_providers(self):
        return ["CPUExecutionProvider"]


def test_cuda_that_silently_fell_back_is_skipped_mocked_session(tmp_path, monkeypatch):
    monkeypatch.setattr(
        ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    monkeypatch.setattr(ort, "preload_dlls", lambda: None)
    monkeypatch.setattr(ort, "InferenceSession", SessionThatStartedOnTheCpu)
    with pytest.raises(StageSkippedError, match="it started with CPUExecutionProvider instead"):
        onnxruntime.open(save(tmp_path, graph()), "cuda", OnnxRuntimeOptions())


def test_cuda_without_a_device_is_skipped_mocked_message(tmp_path, monkeypatch):
    def fail(*_args, **_kwargs):
        raise RuntimeError("CUDA failure 100: no CUDA-capable device is detected")

    monkeypatch.setattr(
        ort, "get_available_providers", lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"]
    )
    monkeypatch.setattr(ort, "preload_dlls", lambda: None)
    monkeypatch.setattr(ort, "InferenceSession", fail)
    with pytest.raises(StageSkippedError, match="no CUDA-capable device"):
        onnxruntime.open(save(tmp_path, graph()), "cuda", OnnxRuntimeOptions())


def test_fallbacks_in_a_handmade_profile():
    events = [
        {"cat": "Session", "name": "model_run", "args": {}},
        {
            "cat": "Node",
            "name": "MatMul_1_kernel_time",
            "args": {"op_name": "MatMul", "provider": "CUDAExecutionProvider"},
        },
        {
            "cat": "Node",
            "name": "/a/Shape_kernel_time",
            "args": {"op_name": "Shape", "provider": "CPUExecutionProvider"},
        },
        {
            "cat": "Node",
            "name": "/a/Shape_kernel_time",
            "args": {"op_name": "Shape", "provider": "CPUExecutionProvider"},
        },
        {"cat": "Node", "name": "Cast_4_fence_before", "args": {"op_name": "Cast"}},
        {
            "cat": "Node",
            "name": "Cast_4_kernel_time",
            "args": {"op_name": "Cast", "provider": "CPUExecutionProvider"},
        },
        {"cat": "Node", "name": "odd_kernel_time"},
    ]
    assert fallbacks_in_profile(events, "CUDAExecutionProvider") == (
        Fallback("CPUExecutionProvider", ("/a/Shape (Shape)", "Cast_4 (Cast)")),
    )
    assert fallbacks_in_profile([], "CUDAExecutionProvider") == ()


def test_fallbacks_in_a_real_profile_of_the_cpu(tmp_path):
    settings = ort.SessionOptions()
    settings.enable_profiling = True
    settings.profile_file_prefix = str(tmp_path / "profile")
    session = ort.InferenceSession(
        str(save(tmp_path, graph())), settings, providers=["CPUExecutionProvider"]
    )
    session.run(None, FEEDS)
    events = read_profile(Path(session.end_profiling()))
    (fallback,) = fallbacks_in_profile(events, "CUDAExecutionProvider")
    assert fallback.provider == "CPUExecutionProvider"
    assert any("(Mul)" in node for node in fallback.nodes)
    assert fallbacks_in_profile(events, "CPUExecutionProvider") == ()


def built(model: Path, output: Path, **options):
    request = build_request(model, options=OnnxRuntimeOptions(**options))
    return onnxruntime.build(model, request, Context(output))


def heavy(folder: Path) -> Path:
    """Write a model with external weights and something to optimise."""
    text = (
        f"{HEADER}g (float[n,32] x) => (float[n,32] y) {{ a = Identity(x) b = MatMul(a, W) y ="
        " Relu(b) }"
    )
    file = save(folder, text)
    model = onnx.load(file)
    weights = np.random.default_rng(1).normal(size=(32, 32)).astype(np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "W"))
    onnx.save(
        model, file, save_as_external_data=True, location=f"{file.name}.data", size_threshold=0
    )
    return file


def test_the_exported_model_is_linked_with_its_weights(tmp_path):
    source = heavy(tmp_path / "export")
    output = tmp_path / "built"
    output.mkdir()
    assert built(source, output) == []
    assert {path.name for path in output.iterdir()} == {"model.onnx", "model.onnx.data"}
    assert (output / "model.onnx.data").samefile(tmp_path / "export" / "model.onnx.data")
    x = np.random.default_rng(0).normal(size=(2, 32)).astype(np.float32)
    assert onnxruntime.open(output / "model.onnx", "cpu", OnnxRuntimeOptions()).run({"x": x})[
        "y"
    ].shape == (2, 32)


def test_without_hard_links_the_model_is_copied(tmp_path, monkeypatch):
    def refuse(*_args):
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr("os.link", refuse)
    source = heavy(tmp_path / "export")
    output = tmp_path / "built"
    output.mkdir()
    built(source, output)
    for name in ("model.onnx", "model.onnx.data"):
        assert (output / name).read_bytes() == (tmp_path / "export" / name).read_bytes()
        assert not (output / name).samefile(tmp_path / "export" / name)


@pytest.mark.parametrize("level", ["extended", "all"])
def test_the_optimized_model_keeps_contract_and_results(tmp_path, level):
    source = heavy(tmp_path / "export")
    output = tmp_path / "built"
    output.mkdir()
    findings = built(source, output, artifact="optimized", optimization=level)
    assert [(finding.code, finding.severity) for finding in findings] == (
        [("R102", "note")] if level == "all" else []
    )
    assert {path.name for path in output.iterdir()} == {"model.onnx", "model.onnx.data"}
    opened = onnxruntime.open(output / "model.onnx", "cpu", OnnxRuntimeOptions("none"))
    original = onnxruntime.open(source, "cpu", OnnxRuntimeOptions("none"))
    assert opened.metadata() == original.metadata()
    x = np.random.default_rng(0).normal(size=(2, 32)).astype(np.float32)
    np.testing.assert_allclose(opened.run({"x": x})["y"], original.run({"x": x})["y"], rtol=1e-5)
    assert "Identity" not in {node.op_type for node in onnx.load(output / "model.onnx").graph.node}


def test_the_onnx_package_is_not_needed(tmp_path, monkeypatch):
    file = save(tmp_path, graph())
    for name in [
        name for name in sys.modules if name == "onnx" or name.startswith(("onnx.", "onnx_ir"))
    ]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, "onnx", None)
    assert onnxruntime.open(file, "cpu", OnnxRuntimeOptions()).run(FEEDS)["score"].tolist() == [
        [3.0, 104.0]
    ]
