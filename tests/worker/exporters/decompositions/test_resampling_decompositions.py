"""Adaptive pooling and antialiased resizing as matrix products, compared with torch's own."""

import pytest
import torch
import torch.nn.functional as F

from convkit.worker.exporters.decompositions import resampling
from convkit.worker.exporters.decompositions.decomposition_table import decomposed


@pytest.mark.parametrize("height", [1, 5, 7, 33])
@pytest.mark.parametrize("width", [4, 57])
@pytest.mark.parametrize("size", [(1, 5), (3, 40), (7, 7)])
def test_sizes(height: int, width: int, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    image = torch.rand(2, 3, height, width)
    for mode in ("bilinear", "bicubic"):
        for corners in (False, True):
            expected = F.interpolate(
                image, size=size, mode=mode, antialias=True, align_corners=corners
            )
            found = resampling.resized(mode == "bicubic", image, size, corners)
            assert torch.allclose(found, expected, atol=1e-5)
    assert torch.allclose(
        resampling.adaptive_mean(image, size), F.adaptive_avg_pool2d(image, size), atol=1e-6
    )
    # With few levels, many values of a window are equal.
    levels = (image * 3).round() - 5
    found, places = resampling.adaptive_maximum(levels, size)
    expected, first = F.adaptive_max_pool2d(levels, size, return_indices=True)
    assert torch.equal(found, expected)
    assert torch.equal(places, first)


@pytest.mark.parametrize("factors", [(0.5, 0.3), (1.7, 0.9)])
def test_scale_factors(factors: tuple[float, float]) -> None:
    image = torch.rand(1, 2, 21, 30)
    for mode in ("bilinear", "bicubic"):
        expected = F.interpolate(image, scale_factor=factors, mode=mode, antialias=True)
        found = resampling.resized(mode == "bicubic", image, None, False, factors)
        assert torch.allclose(found, expected, atol=1e-5)


def test_signals_and_volumes() -> None:
    signal, volume = torch.rand(2, 3, 11), torch.rand(2, 3, 5, 7, 9)
    found = resampling.adaptive_mean(signal, [4])
    assert torch.allclose(found, F.adaptive_avg_pool1d(signal, 4), atol=1e-6)
    found = resampling.adaptive_mean(volume, [2, 1, 4])
    assert torch.allclose(found, F.adaptive_avg_pool3d(volume, (2, 1, 4)), atol=1e-6)
    largest = F.adaptive_max_pool3d(volume, (2, 3, 4), return_indices=True)
    for one, other in zip(resampling.adaptive_maximum(volume, [2, 3, 4]), largest, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("align_corners", [False, True])
@pytest.mark.parametrize("sizes", [(5, 7), (1, 3), (4, 5, 6)])
def test_grids(sizes: tuple[int, ...], align_corners: bool) -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, *sizes, generator=random)
    places = (2, 3, 4, 5)[: len(sizes) + 1]
    grid = torch.rand(*places, len(sizes), generator=random) * 6 - 3
    modes = ("bilinear", "nearest", *(["bicubic"] if len(sizes) == 2 else []))
    for number, mode in enumerate(modes):
        for outside, padding in enumerate(("zeros", "border", "reflection")):
            expected = F.grid_sample(x, grid, mode, padding, align_corners)
            found = resampling.sampled_at(x, grid, number, outside, align_corners)
            assert torch.allclose(found, expected, atol=2e-5), (mode, padding)


@pytest.mark.parametrize(
    "options", [{"size": (4, 5)}, {"scale_factor": 0.5}, {"size": (3, 9), "align_corners": True}]
)
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.sampled(2)
def test_open_images(mode: str, options: dict[str, object]) -> None:
    class Resized(torch.nn.Module):
        def forward(self, image: torch.Tensor) -> torch.Tensor:
            return F.interpolate(image, mode=mode, antialias=True, **options)  # type: ignore[arg-type]

    image = torch.rand(1, 2, 20, 24)
    # Half of a size below 4 is 1, of which torch.export makes a program of its own.
    height, width = (torch.export.Dim(name, min=4, max=50) for name in ("height", "width"))
    axes = ({2: height, 3: width},)
    program = torch.export.export(Resized(), (image,), dynamic_shapes=axes, strict=False)
    program = decomposed(program)
    assert "_aa" not in str(program.graph)
    for size in ((20, 24), (8, 6), (4, 50), (50, 4)):
        given = torch.rand(1, 2, *size)
        found = program.module()(given)
        assert torch.allclose(found, Resized()(given), atol=1e-5)
