"""Compressed weights: smaller, near, and untouched where the recipe says so."""

from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, evaluated
from torch import nn

from convkit.runtimes.coreml.compression import compress
from convkit.runtimes.coreml.packages.options import CompressionOptions
from convkit.worker.mil.package_identity import make_canonical
from convkit.worker.mil.program import load_program

INPUTS = {"x": torch.randn(2, 64, generator=torch.Generator().manual_seed(0))}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(64, 256)
        self.head = nn.Linear(256, 64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.relu(self.first(x)))


def built(folder: Path, options: CompressionOptions | None, minimum: str = "iOS18") -> Path:
    conversion = converted(behind_contract(Net(), INPUTS, ["y"]), INPUTS, minimum=minimum)
    model = conversion.model
    if options is not None:
        model = compress(model, conversion.program, options, conversion.modules)
    folder.mkdir(exist_ok=True)
    path = folder / "model.mlpackage"
    model.save(str(path))
    make_canonical(path)
    return path


def weights(path: Path) -> int:
    return (path / "Data/com.apple.CoreML/weights/weight.bin").stat().st_size


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, np.ndarray]:
    path = built(tmp_path_factory.mktemp("plain"), None)
    return weights(path), evaluated(load_program(path), INPUTS)["y"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "share", "error"),
    [
        (CompressionOptions("int8"), 0.25, 0.02),
        (CompressionOptions("int4", block_size=32), 0.17, 0.2),
        (CompressionOptions("palette", bits=4), 0.13, 0.5),
        (CompressionOptions("palette", bits=8), 0.26, 0.05),
        (CompressionOptions(prune=0.5), 0.57, 1.0),
        (CompressionOptions("int8", prune=0.5), 0.19, 1.0),
    ],
    ids=str,
)
@pytest.mark.sampled(3)
def test_weights_take_their_share_and_outputs_are_near(
    options: CompressionOptions,
    share: float,
    error: float,
    plain: tuple[int, np.ndarray],
    tmp_path: Path,
) -> None:
    size, expected = plain
    path = built(tmp_path, options)
    assert weights(path) == pytest.approx(share * size, rel=0.2)
    found = evaluated(load_program(path), INPUTS)["y"]
    assert 0 < np.abs(found - expected).max() <= error * np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.thorough
def test_modules_under_keep_stay_as_they_are(plain: tuple[int, np.ndarray], tmp_path: Path) -> None:
    size, expected = plain
    kept = built(tmp_path / "head", CompressionOptions("int8", keep=("head",)))
    assert weights(kept) == pytest.approx(0.625 * size, rel=0.1)
    all_kept = built(tmp_path / "all", CompressionOptions("int8", keep=("head", "first")))
    np.testing.assert_array_equal(evaluated(load_program(all_kept), INPUTS)["y"], expected)


@pytest.mark.slow
@pytest.mark.thorough
def test_k_means_gives_the_same_palette_again(tmp_path: Path) -> None:
    first, second = (
        built(tmp_path / name, CompressionOptions("palette", bits=4)) for name in ("a", "b")
    )
    place = "Data/com.apple.CoreML/weights/weight.bin"
    assert (first / place).read_bytes() == (second / place).read_bytes()
