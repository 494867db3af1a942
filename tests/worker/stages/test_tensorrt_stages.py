"""TensorRT's stages: real without a device, and under a mock of TensorRT's library where they need
one.
"""

import dataclasses
import json
import shutil
import sys
from pathlib import Path

import mocked_tensorrt
import numpy as np
import onnx
import pytest
from mocked_device_memory import HostMemory
from mocked_tensorrt import Faults
from onnx import TensorProto, helper, numpy_helper
from small_graphs import CONTRACT, SAMPLES, body, graph, save
from stage_requests import build_request, verify_request

from convkit.host.record.run_record import Verification
from convkit.host.verdict.target_verdict import judge
from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.json_codec import decode
from convkit.protocol.messages import ReferenceRequest, Source, VerifyResult, is_of_sweep
from convkit.runtimes.tensorrt import build as tensorrt_build
from convkit.runtimes.tensorrt import session as engine_session
from convkit.runtimes.tensorrt import verify as tensorrt_verify
from convkit.runtimes.tensorrt.options import EngineOptions
from convkit.worker.job_context import Context, StageSkippedError
from convkit.worker.stages import reference


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    """Put the mock in TensorRT's place, and host memory in the device's."""
    made = Faults()
    monkeypatch.setitem(sys.modules, "tensorrt", mocked_tensorrt.mocked_tensorrt(made))
    monkeypatch.setattr(engine_session, "open_memory", HostMemory)
    return made


def build(
    tmp_path: Path,
    text: str = "",
    *,
    stand_in: bool = False,
    contract: Contract = CONTRACT,
    **options,
):
    exported = tmp_path / "exported"
    if text:
        name_nodes(save(exported, text, carries=contract))
    output = tmp_path / "built"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    request = build_request(
        exported,
        contract=contract,
        device="cuda",
        options=decode(EngineOptions, options),
        stand_in=stand_in,
        caches=str(tmp_path / "caches"),
    )
    return tensorrt_build.run(request, Context(output))


def name_nodes(file: Path) -> None:
    """Name the nodes, as exporters do; ONNX's text syntax has no names."""
    model = onnx.load(file)
    for number, node in enumerate(model.graph.node):
        node.name = f"/net/{node.op_type}_{number}"
    onnx.save(model, file)


def make_reference(tmp_path: Path, text: str) -> Path:
    output = tmp_path / "reference"
    output.mkdir()
    source = Source("onnx", path=str(save(tmp_path / "original", text)))
    reference.run(ReferenceRequest(source, CONTRACT, SAMPLES, 0, (), None, ()), Context(output))
    return output


def check(tmp_path: Path, **changes) -> tuple[VerifyResult, list]:
    asked = verify_request(
        tmp_path / "built", tmp_path / "reference", device="cuda", options=EngineOptions()
    )
    return tensorrt_verify.run(dataclasses.replace(asked, **changes), Context(tmp_path))


def codes(findings) -> list[str]:
    return [finding.code for finding in findings]


class TestWithoutADevice:
    @pytest.fixture(autouse=True)
    def _no_parser(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without TensorRT-RTX, the documentation decides; with it, see test_asked_parser."""
        monkeypatch.setattr(tensorrt_build, "rtx_library", lambda: None)

    def test_the_graph_is_left_with_its_contract_bindings_and_operators(
        self, tmp_path: Path
    ) -> None:
        result, findings = build(tmp_path, graph(), stand_in=True)
        assert findings == []
        assert [spec.name for spec in result.session.inputs] == ["ids", "mask", "types"]
        assert set(result.files) == {
            "model.onnx",
            "operators.json",
            "contract.json",
            "bindings.hpp",
            "bindings.py",
        }

    def test_an_operator_that_the_parser_lacks_is_told_with_its_node(self, tmp_path: Path) -> None:
        nodes = body().replace(
            "m = Cast<to=1>(mask)", "d = Det(i) m0 = Cast<to=1>(mask) m = Add(m0, d)"
        )
        _, findings = build(tmp_path, graph(nodes=nodes), stand_in=True)
        (finding,) = [finding for finding in findings if finding.code == "T105"]
        assert finding.is_error
        assert "Det" in finding.message

    def test_an_operator_in_a_type_that_the_parser_lacks_is_told(self, tmp_path: Path) -> None:
        nodes = body().replace(
            "m = Cast<to=1>(mask)", "w = Cast<to=5>(mask) v = Neg(w) m = Cast<to=1>(v)"
        )
        _, findings = build(tmp_path, graph(nodes=nodes), stand_in=True)
        (finding,) = [finding for finding in findings if finding.code == "T105"]
        assert (finding.is_error, finding.place.node) == (True, "/net/Neg_2")
        assert "Neg (int16 -> int16)" in finding.message

    def test_float64_is_warned_of_and_an_opset_out_of_range_refused(self, tmp_path: Path) -> None:
        nodes = body().replace(
            "m = Cast<to=1>(mask)", "w = Cast<to=11>(mask) v = Neg(w) m = Cast<to=1>(v)"
        )
        text = graph(nodes=nodes).replace('"" : 17', '"" : 8')
        _, findings = build(tmp_path, text, stand_in=True)
        assert {"T106", "V104"} <= set(codes(findings))

    @pytest.mark.parametrize(
        ("kind", "point", "refused"), [("int8", 0, False), ("int8", 3, True), ("uint8", 0, True)]
    )
    def test_zero_points_other_than_zero_are_refused(
        self, tmp_path: Path, kind: str, point: int, refused: bool
    ) -> None:
        write_quantized(tmp_path / "exported", kind, point)
        _, findings = build(tmp_path, stand_in=True, contract=FLOATS)
        assert ("T107" in codes(findings)) == refused

    def test_the_graph_is_verified_in_the_engines_stead(self, tmp_path: Path) -> None:
        make_reference(tmp_path, graph())
        build(tmp_path, graph(), stand_in=True)
        asked = verify_request(
            tmp_path / "built",
            tmp_path / "reference",
            device="cuda",
            options=EngineOptions(),
            stand_in=True,
        )
        result, findings = tensorrt_verify.run(asked, Context(tmp_path))
        assert (result.evidence, findings) == ("simulated", [])
        assert all(case.outputs[0].max_abs == 0 for case in result.cases)

    def test_without_the_library_building_on_a_device_is_skipped(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "tensorrt", None)
        with pytest.raises(StageSkippedError, match=r"cannot be imported.*--toolchain host"):
            build(tmp_path, graph())


FLOATS = Contract(
    (TensorSpec("x", "float32", ("batch", 4)),),
    (TensorSpec("y", "float32", ("batch", 4)),),
    (Axis("batch", 1, 2, 4),),
)


def write_quantized(folder: Path, kind: str, point: int) -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])
    constants = [
        numpy_helper.from_array(np.array(0.1, np.float32), "scale"),
        numpy_helper.from_array(np.array(point, kind), "zero"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="/q"),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["y"], name="/dq"),
    ]
    made = helper.make_graph(nodes, "net", [x], [y], constants)
    folder.mkdir()
    onnx.save(
        helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        folder / "model.onnx",
    )


class TestUnderMockedTensorRT:
    def test_an_engine_is_built_checked_and_its_own_order_told(
        self, tmp_path: Path, faults: Faults
    ) -> None:
        result, findings = build(tmp_path, graph())
        assert codes(findings) == ["C302"]
        assert (
            "lists its inputs as types, mask, ids; the contract's order is ids, mask, types"
            in findings[0].message
        )
        assert {"model.engine", "layers.json", "model.onnx", "bindings.hpp"} <= set(result.files)
        assert [spec.name for spec in result.session.inputs] == ["types", "mask", "ids"]

    def test_strong_typing_is_asked_for_and_tf32_is_off(
        self, tmp_path: Path, faults: Faults
    ) -> None:
        build(tmp_path, graph())
        trt = sys.modules["tensorrt"]
        assert trt.network_flags == 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
        assert trt.last_config.flags == {trt.BuilderFlag.EDITABLE_TIMING_CACHE}

    def test_the_recipes_keys_reach_the_builder(self, tmp_path: Path, faults: Faults) -> None:
        profiles = [{"batch": {"min": 1, "typical": 1, "max": 1}}, {}]
        build(
            tmp_path,
            graph(),
            tf32=True,
            profiles=profiles,
            workspace_gib=0.5,
            builder_level=5,
            version_compatible=True,
            hardware_compatible="ampere_plus",
            weights="refit",
            sparse_weights=True,
            dla={"core": 1, "fallback": True},
        )
        trt = sys.modules["tensorrt"]
        config, flag = trt.last_config, trt.BuilderFlag
        assert config.flags == set(flag) - {flag.STRIP_PLAN}
        assert config.pools == {trt.MemoryPoolType.WORKSPACE: 1 << 29}
        assert (config.builder_optimization_level, config.DLA_core) == (5, 1)
        assert config.default_device_type == trt.DeviceType.DLA
        assert config.hardware_compatibility_level == trt.HardwareCompatibilityLevel.AMPERE_PLUS
        assert [profile.shapes["ids"] for profile in config.profiles] == [
            [[1, 2], [1, 6], [1, 12]],
            [[1, 2], [2, 6], [4, 12]],
        ]

    def test_timings_are_kept_and_read_again_and_a_damaged_file_is_begun_anew(
        self, tmp_path: Path, faults: Faults
    ) -> None:
        for expected in (b"timed;", b"timed;timed;"):
            build(tmp_path, graph())
            (file,) = (tmp_path / "caches").iterdir()
            assert file.read_bytes() == expected
        file.write_bytes(b"damaged")
        build(tmp_path, graph())
        assert file.read_bytes() == b"timed;"

    def test_the_parsers_refusal_names_the_node(self, tmp_path: Path, faults: Faults) -> None:
        faults.refuses = "No importer registered for op: Odd"
        result, findings = build(tmp_path, graph())
        (finding,) = findings
        assert (finding.code, finding.place.node) == ("E213", "/net/Odd")
        assert "No importer registered for op: Odd" in finding.message
        assert result.session.inputs == ()

    def test_a_failed_build_gives_tensorrts_own_words(self, tmp_path: Path, faults: Faults) -> None:
        faults.fails = True
        _, findings = build(tmp_path, graph())
        assert codes(findings) == ["E205"]
        assert "no tactic fits the workspace" in findings[0].message

    def test_an_engine_in_another_type_than_planned_is_an_error(
        self, tmp_path: Path, faults: Faults
    ) -> None:
        faults.layer_type = "Row major linear FP16 format"
        _, findings = build(tmp_path, graph())
        (finding,) = [finding for finding in findings if finding.code == "E214"]
        assert finding.is_error
        assert "returns float16 instead of float32" in finding.message

    def test_an_engine_whose_layers_name_no_node_is_told_as_unchecked(
        self, tmp_path: Path, faults: Faults
    ) -> None:
        save(tmp_path / "exported", graph())
        _, findings = build(tmp_path)
        (finding,) = [finding for finding in findings if finding.code == "E214"]
        assert finding.severity == "warning"
        assert "cannot check its layers" in finding.message

    def test_without_cuda_the_build_is_skipped(self, tmp_path: Path, faults: Faults) -> None:
        faults.no_cuda = True
        with pytest.raises(StageSkippedError, match="does not start here"):
            build(tmp_path, graph())

    def test_the_engine_matches_everywhere_beside_the_cpu(
        self, tmp_path: Path, faults: Faults
    ) -> None:
        make_reference(tmp_path, graph())
        build(tmp_path, graph())
        result, findings = check(tmp_path)
        assert codes(findings) == ["C302"]
        assert (result.evidence, result.providers) == ("device", ("TensorRT",))
        assert len([case for case in result.cases if not is_of_sweep(case.case)]) == 15
        assert {(case.error, case.outputs[0].max_abs) for case in result.cases} == {(None, 0)}
        assert len(result.simulated) == len(result.cases)

    @pytest.mark.thorough
    def test_sizes_that_the_run_decides_are_allocated_as_it_asks(
        self, tmp_path: Path, faults: Faults
    ) -> None:
        make_reference(tmp_path, graph())
        build(tmp_path, graph())
        faults.unknown_sizes = True
        result, _ = check(tmp_path)
        assert {(case.error, case.outputs[0].max_abs) for case in result.cases} == {(None, 0)}

    def test_a_size_outside_every_profile_is_left_out_and_told(
        self, tmp_path: Path, faults: Faults
    ) -> None:
        make_reference(tmp_path, graph())
        build(tmp_path, graph(), profiles=[{"batch": {"min": 1, "typical": 2, "max": 2}}])
        result, _ = check(tmp_path)
        (omitted,) = [case for case in result.omitted if case.name == "largest"]
        assert "no profile of the engine serves ids=[4, 12]" in omitted.reason

    def test_crossed_bindings_of_an_engine_are_named_with_both_orders(
        self, tmp_path: Path, faults: Faults
    ) -> None:
        make_reference(tmp_path, graph())
        build(tmp_path, graph())
        faults.crossed = ("mask", "types")
        result, _ = check(tmp_path)
        verdict = judged(result, tmp_path)
        assert verdict.status == "failed"
        assert verdict.findings[0].code == "C110"
        message = verdict.findings[0].message
        assert "Declared order: ids, mask, types. The model behaves as: ids, types, mask" in message

    def test_a_damaged_engine_is_refused_in_tensorrts_words(
        self, tmp_path: Path, faults: Faults
    ) -> None:
        make_reference(tmp_path, graph())
        build(tmp_path, graph())
        (tmp_path / "built" / "model.engine").write_bytes(b"not an engine")
        result, findings = check(tmp_path)
        assert (codes(findings), result.cases) == (["E205"], ())
        assert "magic tag does not match" in findings[0].message


def judged(result: VerifyResult, tmp_path: Path) -> Verification:
    from small_recipe import recipe

    from convkit.protocol.json_codec import decode
    from convkit.protocol.messages import ReferenceResult

    outputs = [{"name": "score", "dtype": "float32", "shape": ["batch", "sequence"]}]
    asked = recipe(outputs=outputs, targets={"trt": {"runtime": "tensorrt"}})
    told = decode(ReferenceResult, json.loads((tmp_path / "reference" / "cases.json").read_text()))
    return judge(asked, asked.targets["trt"], told, result, stage="verify:trt", version=None)
