"""TorchScript archives and those of torch.export become graphs, as modules do."""

import onnx
import onnxruntime
import pytest
import torch
from torch_archives import save_exported, save_script

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.protocol.messages import ExportRequest, Source
from convkit.worker.job_context import Context
from convkit.worker.stages.export import run

CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", 8)), TensorSpec("y", "float32", ("batch", 8))),
    (TensorSpec("out", "float32", ("batch", 3)),),
    (Axis("batch", 1, 3, 8),),
)


@pytest.mark.parametrize("kind", ["torchscript", "exported"])
def test_an_archive_is_exported_with_branches_and_module_paths(tmp_path, kind):
    path, out = tmp_path / "archive", tmp_path / "out"
    out.mkdir()
    module = (save_script if kind == "torchscript" else save_exported)(path)
    exporter = "torchscript" if kind == "torchscript" else "torch"
    source = Source(kind, path=str(path))
    result, findings = run(
        ExportRequest(source, CONTRACT, {}, exporter, 18, "signature"), Context(out)
    )
    assert findings == []
    assert result.graph.inputs == CONTRACT.inputs
    graph = onnx.load(out / "model.onnx").graph
    modules = {node.op_type: node.metadata_props for node in graph.node}
    assert [each.value for each in modules["Relu"] if each.key == "convkit.module"] == ["body"]
    session = onnxruntime.InferenceSession(out / "model.onnx")
    for sign in (1, -1):  # both sides of the script's branch
        x, y = sign * torch.rand(5, 8), torch.randn(5, 8)
        expected = module(x, y=y) if kind == "torchscript" else module(x, y=y)["out"]
        [found] = session.run(None, {"x": x.numpy(), "y": y.numpy()})
        assert torch.allclose(torch.from_numpy(found), expected, atol=1e-5)
