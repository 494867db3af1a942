"""Modules that compute gradients in `forward`: exported with an open batch, and run."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from exporting_modules import export_graph
from torch import nn

from convkit.protocol.contract import Axis, Contract, TensorSpec
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.inner_gradients import computes_gradients
from convkit.worker.original.loading.loaded_model import LoadedModel


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.flatten(2)
        attended: torch.Tensor = self.layer(rows, rows, rows, need_weights=False)[0]
        return attended


def _layers() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    layers = {
        "SiLU": nn.Sequential(nn.Linear(4, 8), nn.SiLU(), nn.Linear(8, 3)),
        "Mish": nn.Mish(),
        "LayerNorm": nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU()),
        "GroupNorm": nn.Sequential(nn.GroupNorm(3, 6), nn.Softplus()),
        "attention": Attention(),
        "strides": nn.Conv2d(6, 4, (3, 1), 2, 1),
        "dilation and groups": nn.Conv2d(6, 6, 3, padding=2, dilation=2, groups=3),
        "transposed": nn.ConvTranspose2d(6, 4, 3, 2, 1, output_padding=1),
        "maxima": nn.MaxPool2d(2),
        "means": nn.AvgPool2d((3, 2), 2, (1, 0)),
    }
    return {
        name: layer.eval().requires_grad_(requires_grad=False) for name, layer in layers.items()
    }


LAYERS = _layers()


class Slope(nn.Module):
    """The gradient of a layer's squares by its input, in one of the ways people write it."""

    def __init__(self, layer: nn.Module, way: str) -> None:
        super().__init__()
        self.layer, self.way = layer, way

    def _energy(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x).square().sum()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "func.grad":
            return torch.func.grad(self._energy)(x)
        if self.way == "the caller records":
            x = x.detach().requires_grad_()
            return torch.autograd.grad(self._energy(x), x, create_graph=True)[0]
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(self._energy(x), x)[0]


CONTRACT = Contract(
    (TensorSpec("x", "float32", ("batch", 6, 7, 4)),),
    (TensorSpec("y", "float32", ("batch", 6, 7, 4)),),
    (Axis("batch", 1, 3, 8),),
)


def _contract(name: str) -> Contract:
    if name != "attention":
        return CONTRACT
    shape = ("batch", "length", 2, 4)
    return Contract(
        (TensorSpec("x", "float32", shape),),
        (TensorSpec("y", "float32", shape),),
        (*CONTRACT.axes, Axis("length", 1, 5, 9)),
    )


def _check(name: str, way: str, folder: Path) -> None:
    contract = _contract(name)
    slope = Slope(LAYERS[name], way).eval()
    module = ContractModule(LoadedModel(slope, "a test's"), contract)
    sizes = {axis.name: axis.typical for axis in contract.axes}
    example = torch.randn(contract.inputs[0].concrete_shape(sizes))
    with torch.no_grad():
        path = export_graph(module, [example], folder)
    session = onnxruntime.InferenceSession(path)
    for batch in (1, 3, 8):
        x = torch.randn(batch, *example.shape[1:])
        (found,) = session.run(None, {"x": x.numpy()})
        expected = Slope(LAYERS[name], "")(x).detach().numpy()
        assert np.abs(expected).max() > 0
        assert np.allclose(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_layers(name: str, tmp_path: Path) -> None:
    _check(name, "enable_grad", tmp_path)


@pytest.mark.parametrize("way", ["func.grad", "the caller records", "enable_grad"])
def test_modules_that_compute_them_are_known(way: str) -> None:
    slope = Slope(LAYERS["SiLU"], way)
    assert computes_gradients(slope, [torch.randn(2, 4)])
    assert not computes_gradients(LAYERS["SiLU"], [torch.randn(2, 4)])


@pytest.mark.parametrize("way", ["func.grad", "the caller records"])
def test_ways_to_write_them(way: str, tmp_path: Path) -> None:
    _check("SiLU", way, tmp_path)
