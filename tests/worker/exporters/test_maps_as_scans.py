"""torch's `map` is exported as a scan."""

import onnxruntime
import pytest
import torch
from torch._higher_order_ops import map as mapped

from convkit.worker.exporters.decompositions.maps_as_scans import maps_as_scans


class Rows(torch.nn.Module):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return mapped(lambda row, by: torch.relu(row) * by, x, scale)


@pytest.mark.filterwarnings("ignore")
def test_a_map_runs_on_onnxruntime_at_other_sizes() -> None:
    model, scale = Rows(), torch.tensor([2.0, 3.0])
    rows = torch.export.Dim("rows", min=1, max=8)
    program = torch.export.export(model, (torch.randn(3, 2), scale), dynamic_shapes=({0: rows}, {}))
    exported = torch.onnx.export(maps_as_scans(program), dynamo=True, opset_version=18)
    session = onnxruntime.InferenceSession(exported.model_proto.SerializeToString())
    names = [each.name for each in session.get_inputs()]
    for count in (1, 5):
        x = torch.randn(count, 2)
        (found,) = session.run(None, dict(zip(names, (x.numpy(), scale.numpy()), strict=True)))
        assert torch.equal(torch.from_numpy(found), model(x, scale))
