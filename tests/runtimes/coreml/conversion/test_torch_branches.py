"""`torch.cond` and `while_loop` as branches and loops of ML programs."""

from pathlib import Path

import numpy as np
import pytest
import torch
from coreml_modules import behind_contract, converted, evaluated, saved
from torch import nn
from torch._higher_order_ops.while_loop import while_loop

from convkit.worker.exporters.export_job import UnexportableError


class Branches(nn.Module):
    """A branch on a value; one side has a branch of its own, and an operator that is decomposed."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def dear(x: torch.Tensor) -> torch.Tensor:
            x = torch.asinh(self.linear(x))
            return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x * 2, (x,))

        return torch.cond(x.mean() > 0, dear, lambda x: x.clone(), (x,)) + x


class Steps(nn.Module):
    """A loop that values end, with a weight of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def goes_on(n: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
            return (n < 20) & (h.abs().max() < 9)

        def step(n: torch.Tensor, h: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return n + 1, h + torch.tanh(self.linear(h)).abs()

        return while_loop(goes_on, step, (torch.zeros((), dtype=torch.int64), x))[1]


def rows(seed: int, shift: float, count: int = 2) -> torch.Tensor:
    return torch.randn(count, 6, generator=torch.Generator().manual_seed(seed)) + shift


def differences(module: nn.Module, given: list[torch.Tensor]) -> list[float]:
    torch.manual_seed(0)
    inside = behind_contract(module, {"x": given[0]}, ["y"])
    conversion = converted(inside, {"x": given[0]})
    assert conversion.source.refusal is None
    with torch.no_grad():
        return [
            float(np.abs(evaluated(conversion.program, {"x": x})["y"] - module(x).numpy()).max())
            for x in given
        ]


def test_every_side_of_a_branch_is_taken() -> None:
    given = [rows(seed, shift, 3) for seed, shift in ((0, 2.0), (1, -2.0), (2, 1.0), (5, 0.3))]
    assert max(differences(Branches().eval(), given)) <= 1e-5


@pytest.mark.thorough
def test_a_loop_runs_as_long_as_values_say() -> None:
    assert max(differences(Steps().eval(), [rows(0, 0), rows(1, 6), rows(2, 20)])) <= 1e-5


@pytest.mark.thorough
def test_they_are_operations_of_a_program_that_can_be_saved(tmp_path: Path) -> None:
    torch.manual_seed(0)
    for module, kind in ((Branches(), "cond"), (Steps(), "while_loop")):
        given = rows(0, 0)
        inside = behind_contract(module.eval(), {"x": given}, ["y"])
        conversion = converted(inside, {"x": given})
        held = conversion.model._mil_program.functions["main"]
        assert kind in {each.op_type for each in held.operations}
        found = evaluated(saved(conversion, tmp_path / kind), {"x": given})["y"]
        with torch.no_grad():
            assert np.abs(found - module(given).numpy()).max() <= 1e-5


class Undecided(nn.Module):
    """A branch of Python on a value, and an operator that no tool knows."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.airy_ai(x * 2 if x.max().item() > 1 else x)


def test_what_cannot_be_followed_on_an_example_either_is_the_branchs_matter() -> None:
    x = rows(0, 0)
    with pytest.raises(UnexportableError) as refused:
        converted(behind_contract(Undecided(), {"x": x}, ["y"]), {"x": x})
    assert [finding.code for finding in refused.value.findings] == ["E305"]
