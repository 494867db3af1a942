"""The original and the graph in float64 agree where they compute the same, and only there."""

from collections.abc import Callable

import numpy as np
import onnx
import onnx_ir
import pytest
import torch
from faults.exporting import exported

from convkit.worker.cause.graphs import float64_graph
from convkit.worker.cause.graphs.runnable_graph import make_graph
from convkit.worker.original.float64_mode import NotInFloat64Error, run_in_float64

MODELS: dict[str, str] = {
    "attention": """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)
        self.norm = torch.nn.LayerNorm(8)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        scores = q @ k.transpose(1, 2) * 0.1 + torch.arange(4.0) * 0.3
        return torch.softmax(scores, -1) @ v
""",
    "convolution": """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv1d(4, 6, 3, padding=1)
        self.norm = torch.nn.BatchNorm1d(6)

    def forward(self, x):
        h = torch.relu(self.norm(self.conv(x)))
        return torch.where(h > 0.1, h.clamp(max=0.7), torch.zeros_like(h)).mean(-1)
""",
    "recurrent": """
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gru = torch.nn.GRU(8, 5, batch_first=True)

    def forward(self, x):
        return self.gru(x)[0].to(torch.float32) / 3
""",
}
X = torch.randn(2, 4, 8, generator=torch.Generator().manual_seed(1)) * 3


def both(code: str, edit: Callable[[onnx.ModelProto], None]) -> tuple[np.ndarray, np.ndarray]:
    source = f"{code}\ndef build():\n    torch.manual_seed(1)\n    return Net().eval()\n"
    model = exported(source, {"x": X}, ("y",))
    edit(model)
    scope: dict[str, Callable[[], torch.nn.Module]] = {}
    exec(f"import torch\n{source}", scope)
    module = scope["build"]()
    before = [each.clone() for each in module.parameters()]
    right = run_in_float64(module, {"x": X}, ["y"])["y"]
    assert all(map(torch.equal, before, module.parameters()))
    graph = make_graph(onnx_ir.serde.deserialize_model(model))
    return right, float64_graph.run_in_float64(graph, ["y"], {"x": X.numpy()})["y"]


def keep(model: onnx.ModelProto) -> None:
    """Change nothing."""
    assert model.graph.node


@pytest.mark.parametrize("name", MODELS)
def test_they_agree_beyond_float32(name: str) -> None:
    right, computed = both(MODELS[name], keep)
    assert right.dtype == computed.dtype == np.float64
    # The exporter rounds the weights of a convolution with a folded batch norm.
    least = 5e-8 if name == "convolution" else 1e-12
    assert np.abs(right - computed).max() < least


def test_a_constant_that_is_off_by_one_rounding_shows() -> None:
    def edit(model: onnx.ModelProto) -> None:
        norm = next(each for each in model.graph.node if each.op_type == "LayerNormalization")
        next(each for each in norm.attribute if each.name == "epsilon").f *= 1.01

    right, computed = both(MODELS["attention"], edit)
    assert 1e-10 < np.abs(right - computed).max() < 1e-7


def test_writing_into_float32_is_refused() -> None:
    class Writes(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.zeros(2, 4, 8).add_(x)

    with pytest.raises(NotInFloat64Error):
        run_in_float64(Writes(), {"x": X}, ["y"])
