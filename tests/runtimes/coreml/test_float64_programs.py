"""ML programs in float64, and what float32 resolves of them."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, feeds
from torch import nn

from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.original.loading.loaded_model import LoadedModel
from convkit.worker.reference.recorded_original import TorchCase
from convkit.worker.verification.float32_rounding import rounding_finding


class Spread(nn.Module):
    """A variance as the difference of two large numbers, with an offset that can be wrong."""

    def __init__(self, offset: float = 0.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(6, 8)
        self.offset = offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.cat([self.linear(x), torch.exp(-x * 1e-3)], -1)
        mean = y.mean(-1, keepdim=True)
        return (y * y).mean(-1, keepdim=True) - mean * mean + torch.tanh(y) + self.offset


X = torch.randn(2, 6, generator=torch.Generator().manual_seed(3)) * 0.1 + 1000


def test_what_rounding_explains_is_proven_by_the_program_in_float64() -> None:
    module = behind_contract(Spread(), {"x": X}, ["y"])
    original = TorchCase.of(LoadedModel(module, "a test's"), module, {"x": X.numpy()})

    def found(offset: float):
        other = behind_contract(Spread(offset), {"x": X}, ["y"])
        evaluator = Evaluator(converted(other, {"x": X}).program, wide=True)

        def run(given: Mapping[str, np.ndarray]) -> Mapping[str, np.ndarray]:
            return evaluator.run({name: np.asarray(each) for name, each in given.items()}).outputs

        return rounding_finding(original, "extreme", run, "program")

    finding = found(0.0)
    assert finding is not None
    assert finding.code == "N508"
    assert finding.evidence["resolved"]["y"] > 1e-2
    assert finding.evidence["float64"]["y"] < 0.1 * finding.evidence["resolved"]["y"]
    # A mistake that rounding would hide in float32.
    assert found(0.5 * finding.evidence["resolved"]["y"] + 0.1) is None


@pytest.mark.thorough
def test_a_program_in_float64_rounds_nothing() -> None:
    module = behind_contract(Spread(), {"x": X}, ["y"])
    program = converted(module, {"x": X}).program
    wide = Evaluator(program, wide=True).run(feeds({"x": X})).outputs["y"]
    with torch.no_grad():
        exact = Spread().double()(X.double()).numpy()
        single = Spread()(X).numpy()
    narrow = Evaluator(program).run(feeds({"x": X})).outputs["y"]
    assert (wide.dtype, narrow.dtype) == (np.float64, np.float32)
    off = np.abs(single - exact).max()
    assert off > 1e-3
    assert not np.abs(wide - exact).max() > 0.1 * off
