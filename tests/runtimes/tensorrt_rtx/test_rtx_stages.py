"""TensorRT-RTX's stages on a machine without a GPU: real engines, and what stands in for a run."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import onnx
import pytest
from small_graphs import CONTRACT, SAMPLES, body, graph, save
from stage_requests import build_request, verify_request

from convkit.host.toolchain.device_detection import find_device
from convkit.protocol.contract import Contract
from convkit.protocol.messages import ReferenceRequest, Source
from convkit.runtimes.tensorrt.target_engines import PARSER_PACKAGES
from convkit.runtimes.tensorrt_rtx import bench, build, library, verify
from convkit.runtimes.tensorrt_rtx import engine as rtx_engine
from convkit.runtimes.tensorrt_rtx.options import RtxOptions
from convkit.runtimes.tensorrt_rtx.target import RtxTarget
from convkit.worker.job_context import Context, StageSkippedError
from convkit.worker.stages import reference

pytest.importorskip("tensorrt_rtx_bindings", reason="TensorRT-RTX is not installed")
pytestmark = pytest.mark.skipif(
    find_device("cuda").there, reason="this machine has a device: see tests/gpu"
)

SM89 = RtxOptions(compute_capabilities=("sm89",))


def built(folder: Path, text: str, options: RtxOptions = SM89, contract: Contract = CONTRACT):
    file = save(folder / "exported", text, carries=contract)
    model = onnx.load(file)
    for number, node in enumerate(model.graph.node):
        node.name = f"/net/{node.op_type}_{number}"
    onnx.save(model, file)
    output = folder / "built"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    asked = build_request(
        file.parent, contract=contract, device="cpu", options=options, stand_in=True
    )
    return build.run(asked, Context(output))


def checked(folder: Path, text: str, **changes):
    (folder / "reference").mkdir()
    source = Source("onnx", path=str(save(folder / "original", text)))
    asked = ReferenceRequest(source, CONTRACT, SAMPLES, 0, (), None, ())
    reference.run(asked, Context(folder / "reference"))
    request = verify_request(
        folder / "built",
        folder / "reference",
        **({"device": "cpu", "options": SM89, "stand_in": True} | changes),
    )
    (folder / "verified").mkdir()
    return verify.run(request, Context(folder / "verified"))


def codes(findings) -> list[str]:
    return [finding.code for finding in findings]


def test_an_engine_is_built_twice_without_a_gpu(tmp_path: Path) -> None:
    result, findings = built(tmp_path, graph())
    (made,) = findings
    assert (made.code, made.severity) == ("E240", "note")
    assert made.evidence["identical_twice"] is True
    assert made.evidence["build_seconds"] > 0
    assert made.evidence["peak_bytes"] > 1 << 20
    record = json.loads((tmp_path / "built" / "engine.json").read_text())
    plan = (tmp_path / "built" / "model.engine").read_bytes()
    assert (record["bytes"], record["compute_capabilities"]) == (len(plan), ["sm89"])
    assert record["layers"] == len(json.loads((tmp_path / "built" / "layers.json").read_text()))
    assert [spec.name for spec in result.session.inputs] == ["ids", "mask", "types"]
    assert {spec.dtype for spec in result.session.inputs} == {"int64"}


@pytest.mark.thorough
def test_a_contract_that_the_network_does_not_keep_is_an_error(tmp_path: Path) -> None:
    """float64 is built as float32: callers would pass eight bytes where the engine reads four."""
    text = graph(
        nodes=body().replace("score = Mul(sum, m)", "s = Mul(sum, m) score = Cast<to=11>(s)")
    )
    text = text.replace("(float[batch,sequence] score)", "(double[batch,sequence] score)")
    output = CONTRACT.outputs[0].__class__("score", "float64", CONTRACT.outputs[0].shape)
    contract = Contract(CONTRACT.inputs, (output,), CONTRACT.axes)
    _, findings = built(tmp_path, text, contract=contract)
    (wrong,) = [finding for finding in findings if finding.is_error]
    assert (wrong.code, wrong.place.tensor) == ("C205", "score")
    (narrowed,) = [finding for finding in findings if finding.code == "T106"]
    assert narrowed.place.node == "/net/Cast_7"


def test_a_refused_node_leaves_no_engine(tmp_path: Path) -> None:
    nodes = body().replace("m = Cast<to=1>(mask)", "n = BitwiseNot(mask) m = Cast<to=1>(n)")
    _, findings = built(tmp_path, graph(nodes=nodes).replace('"" : 17', '"" : 18'))
    (finding,) = findings
    assert (finding.code, finding.place.node) == ("E213", "/net/BitwiseNot_1")
    assert not (tmp_path / "built" / "model.engine").exists()


def test_a_refusal_of_the_builder_names_the_node(tmp_path: Path) -> None:
    """The parser accepts NonMaxSuppression, and no release has an implementation of its layer."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
    g (float[1,10,4] boxes, float[1,1,10] scores) => (int64[chosen,3] places)
    <int64 most = {5}, float overlap = {0.5}, float least = {0.1}>
    { places = NonMaxSuppression(boxes, scores, most, overlap, least) }"""
    spec = CONTRACT.inputs[0].__class__
    contract = Contract(
        (spec("boxes", "float32", (1, 10, 4)), spec("scores", "float32", (1, 1, 10))),
        (spec("places", "int64", ("chosen", 3)),),
        CONTRACT.axes,
    )
    _, findings = built(tmp_path, text, contract=contract)
    (finding,) = [finding for finding in findings if finding.code == "E213"]
    assert finding.place.node == "/net/NonMaxSuppression_0"
    assert "builder makes no engine for sm89" in finding.message


def test_a_gpu_that_the_release_does_not_know_is_refused(tmp_path: Path) -> None:
    _, findings = built(tmp_path, graph(), RtxOptions(compute_capabilities=("sm90",)))
    (finding,) = findings
    assert finding.is_error
    assert "builds no engines for sm90; it knows sm75, sm80" in finding.message


@pytest.mark.thorough
def test_without_a_device_the_graph_is_simulated(tmp_path: Path) -> None:
    built(tmp_path, graph())
    result, findings = checked(tmp_path, graph())
    assert (result.evidence, findings) == ("simulated", [])
    assert all(case.outputs[0].max_abs == 0 for case in result.cases)


@pytest.mark.thorough
def test_another_release_builds_its_own_engine(tmp_path: Path) -> None:
    built(tmp_path, graph())
    record = tmp_path / "built" / "engine.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"release": "1.0.0"}))
    result, findings = checked(tmp_path, graph())
    assert (result.evidence, codes(findings)) == ("simulated", ["E240"])
    assert "built an engine of its own" in findings[0].message


@pytest.mark.thorough
def test_what_another_release_refuses_fails_under_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(tmp_path, graph())
    record = tmp_path / "built" / "engine.json"
    record.write_text(json.dumps(json.loads(record.read_text()) | {"release": "1.0.0"}))
    monkeypatch.setattr(rtx_engine, "supported_capabilities", lambda _: {"sm75": 75})
    _, findings = checked(tmp_path, graph())
    assert [finding.code for finding in findings if finding.is_error] == ["E205"]


@pytest.mark.thorough
def test_a_gpu_without_support_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A data-center GPU has a driver, and TensorRT-RTX builds nothing for it."""
    built(tmp_path, graph())
    gpu = SimpleNamespace(name="NVIDIA H100", capability=90)
    monkeypatch.setattr(library, "first_gpu", lambda: gpu)
    result, findings = checked(tmp_path, graph(), device="cuda", stand_in=False)
    assert result.evidence == "simulated"
    assert [(each.code, each.severity) for each in findings] == [("E101", "note")]
    assert "NVIDIA H100 has compute capability sm90" in findings[0].message
    request = SimpleNamespace(built=str(tmp_path / "built"), options=SM89)
    with pytest.raises(StageSkippedError, match="sm90"):
        bench.open_built(request)


@pytest.mark.thorough
def test_an_engine_for_other_gpus_is_not_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(tmp_path, graph())
    gpu = SimpleNamespace(name="NVIDIA RTX A4000", capability=86)
    monkeypatch.setattr(library, "first_gpu", lambda: gpu)
    result, findings = checked(tmp_path, graph(), device="cuda", stand_in=False)
    assert (result.evidence, codes(findings)) == ("simulated", ["E101"])
    assert "has compute capability sm86, and the target's compute_capabilities are sm89" in (
        findings[0].message
    )
    assert library.unsupported_gpu(library.check_library(), ("sm89", "sm86")) is None


def test_without_the_library_the_build_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(library, "rtx_library", lambda: None)
    with pytest.raises(StageSkippedError, match="tensorrt-rtx-cu12-libs"):
        built(tmp_path, graph())


def test_bindings_and_libraries_are_of_one_release() -> None:
    target = RtxTarget.model_validate({"runtime": "tensorrt-rtx", "versions": ["==1.4.*"]})
    assert target.one_release == PARSER_PACKAGES
    assert set(PARSER_PACKAGES) <= set(target.packages("build", stand_in=True))
    assert not set(PARSER_PACKAGES) & set(target.packages("precision", stand_in=True))
