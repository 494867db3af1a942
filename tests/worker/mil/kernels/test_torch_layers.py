"""Kernels against torch, by way of coremltools' conversion of torch's layers."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_conversion import converted, evaluated, exported, outputs_of


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.function(*inputs)


Layer = tuple[nn.Module | Callable[..., torch.Tensor], tuple[int, ...]]

LAYERS: dict[str, Layer] = {
    "conv1d": (nn.Conv1d(3, 4, 3, padding=1), (2, 3, 8)),
    "conv1d_same": (nn.Conv1d(3, 4, 4, padding="same"), (2, 3, 8)),
    "conv2d": (
        nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2)),
        (2, 3, 9, 8),
    ),
    "conv2d_depthwise": (nn.Conv2d(4, 8, 3, groups=4, bias=False), (1, 4, 6, 6)),
    "conv2d_grouped": (nn.Conv2d(4, 6, 1, groups=2), (2, 4, 3, 3)),
    "conv3d": (nn.Conv3d(2, 3, 2, stride=2), (1, 2, 4, 4, 4)),
    "conv_transpose1d": (nn.ConvTranspose1d(3, 4, 3, stride=2), (2, 3, 5)),
    "conv_transpose2d": (nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1), (2, 3, 5, 4)),
    "conv_transpose2d_output_padding": (
        nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
        (2, 3, 5, 4),
    ),
    "conv_transpose2d_grouped": (
        nn.ConvTranspose2d(4, 6, 3, groups=2, dilation=2, bias=False),
        (1, 4, 5, 4),
    ),
    "max_pool1d": (nn.MaxPool1d(3, stride=2, padding=1), (2, 3, 8)),
    "max_pool2d": (nn.MaxPool2d((3, 2), stride=2, padding=(1, 0)), (2, 3, 9, 8)),
    "max_pool2d_ceil": (nn.MaxPool2d(3, stride=2, ceil_mode=True), (1, 2, 8, 7)),
    "max_pool2d_ceil_padded": (nn.MaxPool2d(2, stride=3, padding=1, ceil_mode=True), (1, 2, 6, 7)),
    "avg_pool1d": (nn.AvgPool1d(3, stride=2, padding=1), (2, 3, 8)),
    "avg_pool2d": (nn.AvgPool2d(3, stride=2, padding=1), (2, 3, 8, 7)),
    "avg_pool2d_exclusive": (
        nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
        (2, 3, 8, 7),
    ),
    "avg_pool2d_ceil": (nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True), (1, 2, 8, 7)),
    "avg_pool2d_ceil_exclusive": (
        nn.AvgPool2d(3, stride=2, padding=1, ceil_mode=True, count_include_pad=False),
        (1, 2, 8, 7),
    ),
    "adaptive_avg_pool2d": (nn.AdaptiveAvgPool2d(1), (2, 3, 5, 4)),
    "batch_norm": (nn.BatchNorm2d(3).eval(), (2, 3, 4, 4)),
    "group_norm": (nn.GroupNorm(2, 4), (2, 4, 3, 3)),
    "instance_norm1d": (nn.InstanceNorm1d(3, affine=True), (2, 3, 5)),
    "instance_norm2d": (nn.InstanceNorm2d(3, affine=True), (2, 3, 5, 4)),
    "layer_norm": (nn.LayerNorm((3, 4)), (2, 3, 4)),
    "pixel_shuffle": (nn.PixelShuffle(2), (1, 8, 3, 2)),
    "pixel_unshuffle": (nn.PixelUnshuffle(2), (1, 2, 4, 6)),
    "upsample_bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 3, 4)),
    "upsample_bilinear_corners": (
        nn.Upsample(size=(7, 5), mode="bilinear", align_corners=True),
        (1, 2, 3, 4),
    ),
    "upsample_bilinear_size": (nn.Upsample(size=(6, 8), mode="bilinear"), (1, 2, 3, 4)),
    "upsample_nearest": (nn.Upsample(scale_factor=3, mode="nearest"), (1, 2, 3, 4)),
    "silu": (nn.SiLU(), (2, 5)),
    "hardswish": (nn.Hardswish(), (2, 5)),
    "mish": (nn.Mish(), (2, 5)),
    "prelu": (nn.PReLU(3), (2, 3, 4, 4)),
    "linear": (nn.Linear(4, 3), (2, 5, 4)),
    "cumsum": (lambda x: torch.cumsum(x, 1), (2, 5)),
    "roll": (lambda x: torch.roll(x, 2, 1), (2, 5)),
    "flip": (lambda x: torch.flip(x, [0, 2]), (2, 3, 4)),
    "unfold": (lambda x: functional.unfold(x, 2, stride=2), (1, 2, 4, 6)),
    "triangle": (lambda x: torch.tril(x, -1) + torch.triu(x, 1), (2, 4, 4)),
    "index": (lambda x: x[:, [2, 0]], (2, 3, 4)),
    "index_put": (
        lambda x: x.index_put((torch.tensor([0, 1]), torch.tensor([2, 2])), torch.tensor(7.0)),
        (2, 3),
    ),
    "slice_scatter": (lambda x: torch.slice_scatter(x, torch.zeros(2, 2), 1, 1, 3), (2, 5)),
    "scatter_add": (
        lambda x: x.scatter_add(1, torch.tensor([[0, 0, 2], [1, 1, 1]]), torch.ones(2, 3)),
        (2, 3),
    ),
    "var": (lambda x: x.var(-1), (2, 5)),
    "norm": (lambda x: functional.normalize(x, dim=1), (2, 5)),
    "std_where": (lambda x: torch.where(x > 0, x, x.exp()), (2, 5)),
    "attention": (lambda x: functional.scaled_dot_product_attention(x, x, x), (1, 2, 5, 4)),
    "einsum": (lambda x: torch.einsum("bij,bkj->bik", x, x), (2, 3, 4)),
    "reflection_pad": (nn.ReflectionPad2d((1, 2, 0, 1)), (1, 2, 4, 5)),
    "replication_pad": (nn.ReplicationPad2d((1, 2, 0, 1)), (1, 2, 4, 5)),
    "local_response_norm": (nn.LocalResponseNorm(3), (1, 5, 4, 4)),
}


def fit(module: nn.Module) -> nn.Module:
    """Give a module weights and running statistics that no two positions share."""
    generator = torch.Generator().manual_seed(1)
    for tensor in module.state_dict().values():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.1)
    return module.eval()


class All(nn.Module):
    """Every layer on its own input: one conversion for all of them."""

    def __init__(self) -> None:
        super().__init__()
        layers = [
            layer if isinstance(layer, nn.Module) else Of(layer) for layer, _ in LAYERS.values()
        ]
        self.layers = nn.ModuleList(fit(layer) for layer in layers)

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(x) for layer, x in zip(self.layers, inputs, strict=True))


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Every layer's output: the evaluator's and torch's."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator) for _, shape in LAYERS.values()]
    path = converted(
        exported(All(), inputs), tmp_path_factory.mktemp("layers") / "layers.mlpackage"
    )
    pairs = zip(evaluated(path, inputs), outputs_of(All(), inputs), strict=True)
    return dict(zip(LAYERS, pairs, strict=True))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.sampled(1)
def test_layer(name: str, results: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    found, expected = results[name]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
