import onnx
import pytest
from small_recipe import recipe

from convkit.host.plan.tensor_requests import contract_of
from convkit.protocol.messages import InspectRequest
from convkit.worker.graph.graph_contract import carry_contract, load_graph
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.stages.inspect import run

MODEL = """
<ir_version: 10, opset_import: ["" : 18], producer_name: "somebody">
small (float[batch, 3] x) => (float[batch, 2] y)
<float[3, 2] w = {1, 2, 3, 4, 5, 6}>
{ z = MatMul(x, w)
  y = Relu(z) }
"""


def look(path):
    result, findings = run(InspectRequest(str(path)), Context(path.parent))
    assert findings == []
    return result


def test_a_file_made_elsewhere(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(MODEL), path)
    result = look(path)
    assert result.opsets == {"ai.onnx": 18}
    assert result.producer == "somebody"
    assert result.elements == {"float32": 6}
    assert result.operators == {"MatMul": 1, "Relu": 1}
    assert result.carried is None
    assert [str(spec) for spec in result.graph.inputs] == ["x: float32[batch, 3]"]
    assert result.size_bytes == path.stat().st_size


def test_a_carried_contract_and_external_data_are_seen(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(
        onnx.parser.parse_model(MODEL),
        path,
        save_as_external_data=True,
        location="model.onnx.data",
        size_threshold=0,
    )
    model = load_graph(path)
    carry_contract(model, contract_of(recipe()))
    import onnx_ir

    onnx_ir.save(model, path, external_data="model.onnx.data", size_threshold_bytes=0)
    result = look(path)
    assert result.carried == contract_of(recipe()).carried()
    assert result.size_bytes == sum(file.stat().st_size for file in tmp_path.iterdir())
    assert "convkit.contract" not in result.metadata


@pytest.mark.parametrize("content", [b"", b"no model", b"\x08\x0a"])
def test_what_is_no_model_is_refused(tmp_path, content):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(StageFailedError, match=r"^not (an|a readable) ONNX file: "):
        look(path)
