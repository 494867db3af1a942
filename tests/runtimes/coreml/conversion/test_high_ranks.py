"""Windows cut out of images, which takes six dimensions in torch and at most five in Core ML."""

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, evaluated

from convkit.runtimes.coreml.conversion.high_ranks import merged_axes


class Windows(torch.nn.Module):
    """Swin's partition into windows of 2 x 2, something computed in each, and the way back."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, height, width, channels = x.shape
        cut = x.view(batch, height // 2, 2, width // 2, 2, channels)
        windows = cut.permute(0, 1, 3, 2, 4, 5).reshape(-1, 4, channels)
        windows = torch.softmax(windows, 1)
        cut = windows.view(-1, height // 2, width // 2, 2, 2, channels)
        return cut.permute(0, 1, 3, 2, 4, 5).reshape(batch, height, width, channels)


def images(rows: int) -> dict[str, torch.Tensor]:
    return {"x": torch.randn(rows, 4, 6, 3, generator=torch.Generator().manual_seed(rows))}


def test_windows_are_cut_at_any_batch() -> None:
    program = converted(behind_contract(Windows(), images(2), ["y"]), images(2)).program
    for rows in (1, 2, 4):
        found = evaluated(program, images(rows))["y"]
        assert np.abs(found - Windows()(**images(rows)).numpy()).max() <= 1e-6, rows


@pytest.mark.parametrize(
    ("permutation", "groups"),
    [
        ((0, 1, 3, 2, 4, 5), [(0, 1), (3,), (2,), (4, 5)]),
        ((4, 5, 3, 2, 0, 1), [(4, 5), (3,), (2,), (0, 1)]),
        ((0, 1, 2), [(0, 1, 2)]),
        ((2, 1, 0), [(2,), (1,), (0,)]),
    ],
)
def test_axes_that_stay_side_by_side_are_merged(
    permutation: tuple[int, ...], groups: list[tuple[int, ...]]
) -> None:
    assert merged_axes(permutation) == groups
