"""Traces a program's values in one case: where they overflowed, vanished or lost their
differences.
"""

import dataclasses
from collections.abc import Mapping

import numpy as np
import torch

from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.mil.evaluation.execution_plan import (
    ProgramStep,
    StepResult,
    Variable,
    every_step,
    is_constant,
)


@dataclasses.dataclass(frozen=True)
class Taken:
    """An argument of a step: the variable's name, and the step that produced it (None: an input or
    a constant).
    """

    name: str
    maker: str | None
    is_constant: bool
    nan: bool
    infinite: bool
    zeros: bool


@dataclasses.dataclass(frozen=True)
class StepTrace:
    """The trace of one step. `reached` is the largest finite magnitude computed, before rounding.

    `overflowed` finite elements became infinite, `flushed` ones became zero. `flattened`: it
    computed different values but stored a single one; `spread` is their difference. `masked_rows`
    counts a softmax's rows that are entirely -inf.
    """

    step: ProgramStep
    taken: tuple[Taken, ...]
    reached: float
    nan: bool
    infinite: bool
    overflowed: bool
    flushed: bool
    flattened: bool
    spread: float
    masked_rows: int = 0
    rows: int = 0

    @property
    def name(self) -> str:
        """The name of the step's first result."""
        return self.step.name


def perform(evaluator: Evaluator, feeds: Mapping[str, np.ndarray]) -> dict[str, StepTrace]:
    """Evaluate a program, and return a trace of each step by its name, in order."""
    makers = {
        var: step.name
        for step in every_step(evaluator.plan)
        for var in (each.variable for each in step.results)
    }
    watcher = _Watcher(makers)
    evaluator.run(feeds, watcher=watcher)
    return watcher.found


def sums(
    evaluator: Evaluator, feeds: Mapping[str, np.ndarray]
) -> dict[str, tuple[ProgramStep, int, float]]:
    """Evaluate a program; return each mean in float16 by its name, with how many values it adds up,
    and their largest sum.
    """
    watcher = _Means()
    evaluator.run(feeds, watcher=watcher)
    return watcher.found


class _Means:
    """Watches means in float16: how many values each takes, and the largest sum."""

    def __init__(self) -> None:
        self._sizes: dict[str, int] = {}
        self.found: dict[str, tuple[ProgramStep, int, float]] = {}

    def taken(
        self, step: ProgramStep, name: str, variable: Variable, value: torch.Tensor
    ) -> torch.Tensor:
        del variable
        if step.operation == "reduce_mean" and name == "x":
            self._sizes[step.name] = value.numel()
        return value

    def given(
        self, step: ProgramStep, result: StepResult, computed: torch.Tensor, stored: torch.Tensor
    ) -> torch.Tensor:
        del result
        if step.name in self._sizes and stored.dtype == torch.float16 and stored.numel():
            count = self._sizes[step.name] // stored.numel()
            largest = float(computed.abs().max()) * count
            self.found.setdefault(step.name, (step, count, largest))
        return stored


class _Watcher:
    def __init__(self, makers: Mapping[Variable, str]) -> None:
        self._makers = makers
        self._arguments: dict[str, list[Taken]] = {}
        self._rows: dict[str, tuple[int, int]] = {}
        self.found: dict[str, StepTrace] = {}

    def taken(
        self, step: ProgramStep, name: str, variable: Variable, value: torch.Tensor
    ) -> torch.Tensor:
        if value.is_floating_point():
            nan, infinite = _nonfinite(value)
            constant = variable.op is not None and is_constant(variable.op.op_type)
            zeros = bool((value == 0).any()) if value.numel() else False
            held = Taken(variable.name, self._makers.get(variable), constant, nan, infinite, zeros)
            self._arguments.setdefault(step.name, []).append(held)
            if step.operation == "softmax" and name == "x" and infinite:
                axis = int(step.source.axis.val) if step.source.axis is not None else -1
                masked = torch.isneginf(value).all(dim=axis)
                self._rows[step.name] = (int(masked.sum()), masked.numel())
        return value

    def given(
        self, step: ProgramStep, result: StepResult, computed: torch.Tensor, stored: torch.Tensor
    ) -> torch.Tensor:
        if not stored.is_floating_point() or step.name in self.found or not stored.numel():
            return stored
        del result
        nan, infinite = _nonfinite(stored)
        rounds = stored.dtype != computed.dtype
        finite = torch.where(torch.isfinite(computed), computed.float(), 0.0)
        overflowed = (
            rounds and infinite and bool((torch.isinf(stored) & torch.isfinite(computed)).any())
        )
        spread = float(finite.max() - finite.min())
        masked, rows = self._rows.get(step.name, (0, 0))
        self.found[step.name] = StepTrace(
            step=step,
            taken=tuple(self._arguments.pop(step.name, ())),
            reached=float(finite.abs().max()),
            nan=nan,
            infinite=infinite,
            overflowed=overflowed,
            flushed=rounds and bool(((stored == 0) & (computed != 0)).any()),
            flattened=rounds and spread > 0 and float(stored.max()) == float(stored.min()),
            spread=spread,
            masked_rows=masked,
            rows=rows,
        )
        return stored


def _nonfinite(value: torch.Tensor) -> tuple[bool, bool]:
    """Return whether a tensor contains NaN, and whether it contains infinities."""
    if not value.numel() or bool(torch.isfinite(value.sum())):
        return False, False
    return bool(torch.isnan(value).any()), bool(torch.isinf(value).any())
