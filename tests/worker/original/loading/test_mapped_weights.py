"""A model with mapped weights runs, and its graph is written, without all of them in memory."""

import sys

import numpy as np
import onnx_ir
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from tiny_models import tensor

from convkit.protocol.contract import Contract
from convkit.worker.graph.graph_files import write_model
from convkit.worker.graph.graph_weights import share_weights
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading import LoadedModel
from convkit.worker.process import mapped_pages
from convkit.worker.process.mapped_pages import mappings

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

LAYERS, WIDTH = 12, 1448  # 8 MB each
ALL, BUDGET = LAYERS * WIDTH * WIDTH * 4, 16 * 2**20
CONTRACT = Contract((tensor("x", 1, WIDTH),), (tensor("y", 1, WIDTH),), ())


class Stack(torch.nn.Module):
    """Applies its layers, and notes how much of the checkpoint is resident after each."""

    def __init__(self, weights, path):
        super().__init__()
        self.layers = torch.nn.ModuleList()
        for weight in weights:
            with torch.device("meta"):
                layer = torch.nn.Linear(WIDTH, WIDTH, bias=False)
            layer.weight = torch.nn.Parameter(weight, requires_grad=False)
            self.layers.append(layer)
        self.path, self.resident = path, []

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
            self.resident.append(resident(self.path))
        return x


def resident(path):
    return sum(each.resident for each in mappings() if each.path == str(path))


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    path = tmp_path_factory.mktemp("mapped") / "model.safetensors"
    drawn = torch.Generator().manual_seed(0)
    first = torch.randn(WIDTH, WIDTH, generator=drawn) / WIDTH**0.5
    save_file({f"w{each:02}": first.roll(each) for each in range(LAYERS)}, path)
    return path


@pytest.fixture
def weights(checkpoint):
    with safe_open(checkpoint, framework="pt") as opened:
        return [opened.get_tensor(name) for name in sorted(opened.keys())]


@pytest.fixture
def budget(monkeypatch):
    """Count files that are resident anyway, such as libraries, as nothing."""
    mapped_pages.release_pages()
    anyway = mapped_pages.resident_files()
    total = mapped_pages.resident_files
    monkeypatch.setattr(mapped_pages, "resident_files", lambda: max(0, total() - anyway))
    monkeypatch.setattr(mapped_pages, "BUDGET_BYTES", BUDGET)


def run(weights, path):
    stack = Stack(weights, path)
    module = ContractModule(LoadedModel(stack, "stack"), CONTRACT)
    with torch.inference_mode():
        (found,) = module(torch.ones(1, WIDTH))
    return found, max(stack.resident)


@pytest.mark.thorough
def test_a_run_keeps_few_of_the_weights_resident(weights, checkpoint, monkeypatch, budget):
    found, most = run(weights, checkpoint)
    assert most < ALL / 2
    monkeypatch.setattr(mapped_pages, "BUDGET_BYTES", ALL * 2)
    expected, everything = run(weights, checkpoint)
    assert everything == pytest.approx(ALL, rel=0.01)
    assert torch.equal(found, expected)


def test_no_hook_is_left(weights, checkpoint, budget):
    before = len(torch.nn.modules.module._global_forward_hooks)
    run(weights, checkpoint)
    assert len(torch.nn.modules.module._global_forward_hooks) == before


@pytest.mark.thorough
def test_a_graph_is_written_with_few_weights_resident(
    weights, checkpoint, tmp_path, monkeypatch, budget
):
    peaks: list[int] = []
    enforce = mapped_pages.PageBudget.enforce

    def watched(self):
        peaks.append(resident(checkpoint))
        return enforce(self)

    monkeypatch.setattr(mapped_pages.PageBudget, "enforce", watched)
    values = [
        onnx_ir.Value(
            name=f"w{place:02}",
            shape=onnx_ir.Shape(weight.shape),
            type=onnx_ir.TensorType(onnx_ir.DataType.FLOAT),
            const_value=onnx_ir.Tensor(weight.numpy(), name=f"w{place:02}"),
        )
        for place, weight in enumerate(weights)
    ]
    graph = onnx_ir.Graph([], [], nodes=[], initializers=values, opset_imports={"": 18})
    model = onnx_ir.Model(graph, ir_version=10)
    share_weights(model)
    write_model(model, tmp_path)
    assert len(peaks) > LAYERS
    assert max(peaks) < ALL / 2
    written = np.fromfile(tmp_path / "model.onnx.data", np.float32, WIDTH * WIDTH)
    assert (written == weights[0].numpy().reshape(-1)).all()
