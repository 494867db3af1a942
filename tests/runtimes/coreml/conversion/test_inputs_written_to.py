"""Models that write to their inputs: the program computes their outputs, and changes nothing."""

import numpy as np
import torch
from coreml_modules import behind_contract, converted, evaluated

from convkit.protocol.contract import Axis


class Cleared(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x[:, 1:-1] = 0
        x.mul_(2)
        return x.cumsum(1), x


def test_a_slice_of_an_input_with_an_open_axis_is_written_to_a_copy() -> None:
    def given(rows: int, columns: int) -> dict[str, torch.Tensor]:
        return {"x": torch.arange(rows * columns, dtype=torch.float32).reshape(rows, columns) + 1}

    axes = (Axis("batch", 1, 2, 4), Axis("sequence", 4, 6, 9))
    contract = behind_contract(Cleared(), given(2, 6), ["y", "z"], axes)
    program = converted(contract, given(2, 6)).program
    for rows, columns in ((2, 6), (3, 4), (1, 9)):
        found = evaluated(program, given(rows, columns))
        expected = Cleared()(**given(rows, columns))
        for name, each in zip(("y", "z"), expected, strict=True):
            np.testing.assert_allclose(found[name], each.numpy(), rtol=1e-6)
