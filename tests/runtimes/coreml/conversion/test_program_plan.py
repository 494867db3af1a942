"""What a precision means for a program, and what `auto` finds."""

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted
from torch import nn

from convkit.protocol.messages import LowPrecision
from convkit.runtimes.coreml.conversion.program_precision import Decision, decide
from convkit.worker.cases.compared_cases import JudgedCase


class Block(nn.Module):
    def __init__(self, gain: float) -> None:
        super().__init__()
        self.dense = nn.Linear(8, 8, bias=False)
        nn.init.eye_(self.dense.weight)
        self.dense.weight.data *= gain

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(x)


class Net(nn.Module):
    """The second block overflows float16; what follows scales it down again."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(1.0), Block(1e5), Block(1e-5)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def decided(precision: LowPrecision, *, is_auto: bool, limit: float = 0.01) -> Decision:
    net = Net()
    inputs = {"x": torch.rand(2, 8, generator=torch.Generator().manual_seed(0)) + 1}
    conversion = converted(behind_contract(net, inputs, ["y"]), inputs)
    with torch.no_grad():
        case = JudgedCase({"x": inputs["x"].numpy()}, {"y": net(inputs["x"]).numpy()}, {})
    cases, limits = {"typical": case}, {"y": {"max_abs": limit}}
    return decide(conversion.program, conversion.modules, precision, cases, limits, is_auto=is_auto)


def codes(decision: Decision) -> list[str]:
    return [finding.code for finding in decision.findings]


@pytest.mark.slow
def test_headroom_is_told_by_module_before_anything_is_built() -> None:
    decision = decided(LowPrecision("float16"), is_auto=False)
    assert codes(decision) == ["N210"]
    worst = min(
        (row for row in decision.modules if row.headroom is not None),
        key=lambda row: row.headroom or 0,
    )
    assert worst.module == "blocks.1.dense"
    assert worst.largest == pytest.approx(2e5, rel=0.1)
    assert worst.headroom == pytest.approx(65504 / worst.largest)
    assert {row.module: row.low_weights for row in decision.modules}[
        "blocks.0.dense"
    ] == 64 + 8  # and a bias


@pytest.mark.slow
def test_auto_keeps_what_overflows_and_no_more() -> None:
    decision = decided(LowPrecision("float16"), is_auto=True)
    assert codes(decision)[0] == "N208"
    # coremltools leaves an operation with a constant between 65504 and 1e38 alone: the second.
    assert decision.precision.keep_float32 == ("blocks.2.dense",)
    assert decision.rounds[0].overshoot is None or decision.rounds[0].overshoot > 1
    assert decision.rounds[-1].overshoot is not None
    assert decision.rounds[-1].overshoot <= 1


@pytest.mark.slow
def test_kept_modules_count_as_float32() -> None:
    decision = decided(LowPrecision("float16", ("blocks.1",)), is_auto=False)
    rows = {row.module: row for row in decision.modules}
    assert (rows["blocks.1.dense"].float32_weights, rows["blocks.1.dense"].low_weights) == (
        64 + 8,
        0,
    )
    assert codes(decision) == [], "what stays in float32 has all the room it needs"
    assert np.isfinite([row.largest for row in decision.modules]).all()
