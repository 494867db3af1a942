"""Evaluates a low-precision program with origins of wrong values put right: do they spoil its
outputs?
"""

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import torch

from convkit.protocol.json_codec import Json
from convkit.worker.mil.evaluation.evaluator import Evaluator
from convkit.worker.mil.evaluation.execution_plan import ProgramStep, StepResult, Variable
from convkit.worker.mil.saturated_constants import FLOAT16_LARGEST
from convkit.worker.precision.diagnosis.guilty_origins import HARMLESS, WrongValueOrigin, lessening

Feeds = Mapping[str, np.ndarray]


def bad_elements(
    evaluator: Evaluator, feeds: Feeds, corrected: Collection[WrongValueOrigin]
) -> int:
    """Return how many elements of the outputs are not finite with these origins put right."""
    outputs = evaluator.run(feeds, watcher=_PutRight(corrected)).outputs.values()
    return sum(int((~np.isfinite(each)).sum()) for each in outputs if each.dtype.kind == "f")


def helps(evaluator: Evaluator, feeds: Feeds, modules: Collection[str]) -> dict[str, Json]:
    """Return the evidence on whether most of the rounding's error is gone if the results of these
    modules are not rounded.
    """
    wanted, before, after = (
        evaluator.run(feeds, watcher=_Unrounded(each)).outputs for each in (None, (), modules)
    )
    return lessening(_apart(wanted, before), _apart(wanted, after))


def _apart(wanted: Feeds, found: Feeds) -> float:
    """Return the largest error of a float output in parts of its largest value."""
    worst = 0.0
    for name, values in wanted.items():
        if values.dtype.kind == "f" and values.size:
            exact = values.astype(np.float64)
            error = float(np.abs(found[name] - exact).max())
            largest = float(np.abs(exact).max())
            worst = max(worst, error / largest if largest else error)
    return worst


class _PutRight:
    """Limits infinite constants to the type's range, leaves overflows unrounded up to where values
    are in range again, and replaces what else is not finite by what was computed before rounding,
    scaled down.
    """

    def __init__(self, corrected: Collection[WrongValueOrigin]) -> None:
        self._constants = {each.name for each in corrected if each.is_constant}
        self._steps = {each.name for each in corrected if not each.is_constant}
        self._overflowing = {name for each in corrected for name in each.together}
        self._beyond: set[str] = set()

    def taken(
        self, step: ProgramStep, name: str, variable: Variable, value: torch.Tensor
    ) -> torch.Tensor:
        del name
        if variable.name in self._beyond:
            self._overflowing.add(step.name)
        if variable.name not in self._constants:
            return value
        return torch.nan_to_num(value, posinf=FLOAT16_LARGEST, neginf=-FLOAT16_LARGEST)

    def given(
        self, step: ProgramStep, result: StepResult, computed: torch.Tensor, stored: torch.Tensor
    ) -> torch.Tensor:
        if not stored.is_floating_point() or not stored.numel():
            return stored
        if step.name in self._overflowing and not computed.abs().max() <= FLOAT16_LARGEST:
            self._beyond.add(result.name)
            return computed
        if step.name not in self._steps:
            return stored
        finite = torch.nan_to_num(computed.float(), posinf=0.0, neginf=0.0)
        scale = HARMLESS / max(float(finite.abs().max()), HARMLESS)
        return torch.where(torch.isfinite(stored), stored, (finite * scale).to(stored.dtype))


class _Unrounded:
    """Keeps the results of some modules as they were computed; those of all if they are None."""

    def __init__(self, modules: Collection[str] | None) -> None:
        self._modules = modules

    def taken(self, step: ProgramStep, name: str, variable: Variable, value: Any) -> Any:  # noqa: ANN401 - a tensor
        del step, name, variable
        return value

    def given(
        self, step: ProgramStep, result: StepResult, computed: torch.Tensor, stored: torch.Tensor
    ) -> torch.Tensor:
        del result
        return computed if self._modules is None or step.module in self._modules else stored
