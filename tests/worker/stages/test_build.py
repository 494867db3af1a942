import dataclasses
import json
import types

import onnx
import pytest
from small_graphs import CONTRACT, body, graph, save
from stage_requests import build_request

from convkit.protocol.contract import Axis, Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.json_codec import decode
from convkit.runtimes.onnxruntime import build, session
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.worker.job_context import Context, StageFailedError, StageSkippedError
from convkit.worker.runtime_interface.distinct_operators import Operator, Operators
from convkit.worker.stages.graph_build import opens_slowly


def run(tmp_path, model, *, contract=CONTRACT, device="cpu", options=None, low=None):
    output = tmp_path / "built"
    output.mkdir()
    request = build_request(model, contract=contract, device=device, options=options, low=low)
    result, findings = build.run(request, Context(output))
    assert sorted(path.name for path in output.iterdir()) == list(result.files)
    code = ("bindings.hpp", "bindings.py")  # of callers, which is no part of a model's size
    files = [path for path in output.iterdir() if path.name not in code]
    assert result.size_bytes == sum(path.stat().st_size for path in files)
    return result, findings, output


def test_a_model_in_a_folder_is_built_with_its_contract_beside_it(tmp_path):
    save(tmp_path / "export", graph())
    result, findings, output = run(tmp_path, tmp_path / "export")
    assert findings == []
    assert result.files == ("bindings.hpp", "bindings.py", "contract.json", "model.onnx")
    assert result.session.inputs == CONTRACT.inputs
    assert (
        decode(Contract, json.loads((output / "contract.json").read_text())) == CONTRACT.carried()
    )


def test_a_contract_is_read_without_rearranging_weights(tmp_path, monkeypatch):
    opened = []
    create = session._create

    def noting(path, providers, settings):
        opened.append(
            (
                settings.get_session_config_entry("session.disable_prepacking"),
                settings.graph_optimization_level.name,
                providers[0][0],
            )
        )
        return create(path, providers, settings)

    monkeypatch.setattr(session, "_create", noting)
    save(tmp_path / "export", graph())
    options = OnnxRuntimeOptions("extended")
    assert run(tmp_path, tmp_path / "export", options=options)[1] == []
    assert opened == [("1", "ORT_DISABLE_ALL", "CPUExecutionProvider")]


def test_the_optimized_model_is_checked_too(tmp_path):
    options = OnnxRuntimeOptions("extended", "optimized")
    _, findings, output = run(tmp_path, save(tmp_path / "export", graph()), options=options)
    assert findings == []
    assert (output / "model.onnx").is_file()


def test_a_built_model_off_its_contract_is_found(tmp_path):
    swapped = "(int64[batch,sequence] ids, int64[batch,sequence] types, int64[batch,sequence] mask)"
    _, findings, _ = run(tmp_path, save(tmp_path / "export", graph(swapped)))
    assert [finding.code for finding in findings] == ["C103"]
    assert "built model" in findings[0].message


def test_a_fixed_output_axis_is_found(tmp_path):
    text = graph(outputs="float[batch,6] score")
    _, findings, _ = run(tmp_path, save(tmp_path / "export", text))
    assert [finding.code for finding in findings] == ["C206"]


@pytest.mark.parametrize("carried", ["none", "damaged", "renamed", "other axes"])
def test_the_carried_contract_is_checked(tmp_path, carried):
    other = {
        "renamed": dataclasses.replace(
            CONTRACT,
            inputs=(dataclasses.replace(CONTRACT.inputs[0], name="id"), *CONTRACT.inputs[1:]),
        ),
        "other axes": dataclasses.replace(
            CONTRACT, axes=(Axis("batch", 1, 2, 99), CONTRACT.axes[1])
        ),
    }.get(carried)
    file = save(tmp_path / "export", graph(), carries=CONTRACT if carried == "damaged" else other)
    if carried == "damaged":
        model = onnx.load(file)
        model.metadata_props[0].value = "[]"
        onnx.save(model, file)
    _, findings, _ = run(tmp_path, file)
    assert [finding.code for finding in findings] == ["C104" if carried == "renamed" else "C301"]


def test_a_model_that_the_runtime_refuses_gives_its_message(tmp_path):
    nodes = body().replace("Mul(sum, m)", "NoSuchOperator(sum, m)")
    result, findings, _ = run(tmp_path, save(tmp_path / "export", graph(nodes=nodes)))
    assert [finding.code for finding in findings] == ["E205"]
    assert "export.opset" in findings[0].remedy.text
    assert "NoSuchOperator" in findings[0].message
    assert result.session == Contract((), (), ())


def test_an_exported_model_needs_no_device_to_be_built(tmp_path):
    _, findings, _ = run(tmp_path, save(tmp_path / "export", graph()), device="cuda")
    assert findings == []


def test_an_optimized_model_for_an_absent_device_is_skipped(tmp_path):
    with pytest.raises(StageSkippedError, match="CUDAExecutionProvider"):
        run(
            tmp_path,
            save(tmp_path / "export", graph()),
            device="cuda",
            options=OnnxRuntimeOptions(artifact="optimized"),
        )


def test_a_missing_model_is_named(tmp_path):
    with pytest.raises(StageFailedError, match="there is no model at"):
        run(tmp_path, tmp_path / "export")


def test_a_low_precision_keeps_the_contract_and_lowers_what_lies_between(tmp_path):
    result, findings, output = run(tmp_path, save(tmp_path / "export", graph()), low="float16")
    assert findings == []
    assert result.session.outputs == CONTRACT.outputs
    assert result.files == (
        "bindings.hpp",
        "bindings.py",
        "contract.json",
        "model.onnx",
        "model.onnx.data",
        "operators.json",
    )
    inferred = onnx.shape_inference.infer_shapes(onnx.load(output / "model.onnx"))
    types = {value.type.tensor_type.elem_type for value in inferred.graph.value_info}
    assert onnx.TensorProto.FLOAT16 in types
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "built",
        "export",
    ]  # nothing is left beside it


def test_bfloat16_for_a_device_is_checked_without_it(tmp_path):
    file = save(tmp_path / "export", graph())
    result, findings, _ = run(tmp_path, file, device="cuda", low="bfloat16")
    assert findings == []
    assert result.session.inputs == CONTRACT.inputs


def test_bfloat16_for_a_device_is_checked_against_the_contract_too(tmp_path):
    swapped = "(int64[batch,sequence] ids, int64[batch,sequence] types, int64[batch,sequence] mask)"
    file = save(tmp_path / "export", graph(swapped))
    _, findings, _ = run(tmp_path, file, device="cuda", low="bfloat16")
    assert [finding.code for finding in findings] == ["C103"]


def test_a_graph_without_types_is_not_lowered(tmp_path):
    nodes = body().replace("Mul(sum, m)", "com.example.Custom(sum, m)")
    text = graph(nodes=nodes).replace('["" : 17]', '["" : 17, "com.example" : 1]')
    text = text.replace("score = com", "own = com").replace(
        "(sum, m)", "(sum, m)\n        score = Neg(own)"
    )
    with pytest.raises(StageFailedError, match=r"com\.example\.Custom"):
        run(tmp_path, save(tmp_path / "export", text), low="float16")


def test_a_huge_low_graph_is_opened_if_an_operator_is_doubtful():
    text = "the runtime has no kernel for it"
    doubt = Finding("T101", text, Place(), {}, Remedy(""))
    operator = Operator("Neg", "float16 -> float16", 20_000, "", "", "", None)
    operators = Operators("", 8, {"": 17}, (operator,))
    request = types.SimpleNamespace(stand_in=False, device="cpu")

    def runtime(file: str, *refused: Finding) -> types.SimpleNamespace:
        return types.SimpleNamespace(MODEL_FILE=file, refusals=lambda *_: [*refused])

    assert opens_slowly(runtime("model.onnx"), operators, request)
    assert not opens_slowly(runtime("model.onnx", doubt), operators, request)
    few = dataclasses.replace(operators, operators=(dataclasses.replace(operator, count=9_999),))
    assert not opens_slowly(runtime("model.onnx"), few, request)
    assert not opens_slowly(runtime("model.onnx"), None, request)
    # OpenVINO's own format is not read as ONNX.
    assert not opens_slowly(runtime("model.xml"), operators, request)
