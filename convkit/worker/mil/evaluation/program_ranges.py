"""Measures the magnitude of a program's values in float32, by module: one evaluation per case,
keeping only the largest.
"""

import dataclasses
import math
from collections.abc import Mapping

import numpy as np
import torch

from convkit.worker.mil.evaluation.evaluator import Evaluator, Watcher
from convkit.worker.mil.evaluation.execution_plan import (
    ProgramStep,
    StepResult,
    every_step,
    is_constant,
)
from convkit.worker.mil.program import Program

# Values of this magnitude are masks, which would hide everything else here. Evaluation in float16
# shows their effect.
_MASKING = 1e30


@dataclasses.dataclass(frozen=True)
class Largest:
    """The largest finite magnitude of a module's results, excluding masks, with the tensor and the
    case.
    """

    magnitude: float
    tensor: str
    case: str


@dataclasses.dataclass(frozen=True)
class ProgramRanges:
    """By module: the largest value, and the number of operations with floating-point results."""

    largest: Mapping[str, Largest]
    operations: Mapping[str, int]


def run_ranges(
    program: Program, modules: Mapping[str, str], cases: Mapping[str, Mapping[str, np.ndarray]]
) -> ProgramRanges:
    """Evaluate a float32 program on every case. Raises UnsupportedOperation, EvaluationError."""
    evaluator = Evaluator(program, modules)
    watcher = _Largest()
    for case, feeds in cases.items():
        watcher.case = case
        evaluator.run(feeds, watcher=watcher)
    operations: dict[str, int] = {}
    for step in every_step(evaluator.plan):
        if any(result.type == "fp32" for result in step.results):
            operations[step.module] = operations.get(step.module, 0) + 1
    return ProgramRanges(watcher.largest, operations)


def weights_by_module(program: Program, modules: Mapping[str, str]) -> dict[str, int]:
    """Return the number of float weight elements used by each module's operations; shared weights
    count once, for the first.
    """
    counted: set[int] = set()
    weights: dict[str, int] = {}
    for step in every_step(Evaluator(program, modules).plan):
        for _, given in step.arguments:
            for variable in given if isinstance(given, tuple) else (given,):
                if (
                    variable.op is None
                    or not is_constant(variable.op.op_type)
                    or id(variable) in counted
                ):
                    continue
                if variable.is_tensor_or_scalar_of(dtype="fp32"):
                    counted.add(id(variable))
                    elements = math.prod(int(size) for size in variable.shape)
                    weights[step.module] = weights.get(step.module, 0) + elements
    return weights


class _Largest(Watcher):
    def __init__(self) -> None:
        self.case = ""
        self.largest: dict[str, Largest] = {}

    def given(
        self, step: ProgramStep, result: StepResult, computed: torch.Tensor, stored: torch.Tensor
    ) -> torch.Tensor:
        if computed.dtype == torch.float32 and computed.numel():
            before = self.largest.get(step.module)
            magnitude = _largest(computed)
            if before is None or magnitude > before.magnitude:
                self.largest[step.module] = Largest(magnitude, result.name, self.case)
        return stored


def _largest(value: torch.Tensor) -> float:
    """Return the largest magnitude that is neither infinite nor a mask's."""
    low, high = value.aminmax()
    largest = max(abs(float(low)), abs(float(high)))
    if largest < _MASKING:  # False for NaN
        return largest
    magnitudes = value.abs()
    plain = magnitudes[magnitudes < _MASKING]
    return float(plain.max()) if plain.numel() else 0.0
