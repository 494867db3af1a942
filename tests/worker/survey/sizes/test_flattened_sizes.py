"""The size of an axis is solved for from what torch says does not fit."""

import pytest
import torch

from convkit.protocol.contract import Dimension, TensorSpec
from convkit.worker.survey.sizes.flattened_sizes import SolvedSizes


class Positions(torch.nn.Module):
    """Adds a table of positions, before or after what is computed."""

    def __init__(self, rows: int, *, first: bool) -> None:
        super().__init__()
        self.table, self.first = torch.nn.Parameter(torch.zeros(rows, 4)), first

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.table + x if self.first else x + self.table


class Patches(torch.nn.Module):
    """Adds positions to the patches of an image, and one for a class token."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.zeros((side // 16) ** 2 + 1, 4))
        self.patches = torch.nn.Conv2d(3, 4, 16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return torch.cat([tokens[:, :1], tokens], 1) + self.table


@pytest.mark.parametrize(
    ("module", "shape", "first", "wanted"),
    [
        (Positions(24, first=False), ("batch", "sequence", 4), 32, 24),
        (Positions(77, first=True), ("batch", "sequence", 4), 32, 77),
        (Patches(64), ("batch", 3, "side", "side"), 224, 64),
        (Patches(96), ("batch", 3, "side", "side"), 224, 96),
    ],
)
def test_positions_tell_the_size(
    module: torch.nn.Module, shape: tuple[Dimension, ...], first: int, wanted: int
) -> None:
    axis = str(shape[-1] if shape[-1] != 4 else "sequence")
    solved = SolvedSizes([TensorSpec("x", "float32", shape)], axis)
    sizes: dict[str, int] | None = {"batch": 2, axis: first}
    for _ in range(6):
        assert sizes is not None
        given = [sizes[each] if isinstance(each, str) else each for each in shape]
        try:
            module(torch.zeros(given))
        except RuntimeError as error:
            sizes = solved.next_sizes(sizes, str(error))
        else:
            break
    assert sizes is not None
    whole = 16 if axis == "side" else 1  # what a patch leaves out does not matter
    assert sizes[axis] // whole == wanted // whole
