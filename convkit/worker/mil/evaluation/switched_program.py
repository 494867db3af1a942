"""A float32 program with switchable rounding per module: any plan's effect, without a conversion.

A lowered module computes like a float16 conversion by coremltools 9.0 (FP16ComputePrecision): its
operations round their float inputs, turn constants from 1e38 into infinity, and round their
results. Operations that coremltools never casts, and those with a constant between 65504 and 1e38,
stay in float32.
"""

from collections.abc import Collection, Mapping
from typing import Any, Self

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
from convkit.worker.mil.program import Program
from convkit.worker.mil.saturated_constants import FLOAT16_LARGEST

# From this magnitude, a constant becomes infinity (FP16ComputePrecision.fp16_overflow).
TAKEN_FOR_INFINITY = 1e38
# In constants with fewer elements, values that float16 would round to zero become its smallest
# subnormal (_check_underflow_to_zero).
_GUARDED = 400
# Bytes of rounded constants.
_MOST_KEPT = 1 << 28
_SMALLEST = float(np.nextafter(np.float16(0), np.float16(1)))


class SwitchedEvaluator:
    """A float32 program, ready to run with any modules lowered. `modules` maps tensor names to
    module paths.

    `saturate`: finite constants beyond float16 become its largest number in lowered operations.
    """

    def __init__(self, program: Program, modules: Mapping[str, str], *, saturate: bool) -> None:
        """Raises UnsupportedOperation."""
        self._evaluator = Evaluator(program, modules)
        self._constants = _RoundedConstants(saturate=saturate)
        with program.function:  # coremltools' casts depend on the function's deployment target
            self._castable = {
                step.name: parameters
                for step in every_step(self._evaluator.plan)
                if (parameters := _cast_parameters(step.source, saturate=saturate))
            }
        lowable = [
            step.module for step in every_step(self._evaluator.plan) if step.name in self._castable
        ]
        self.modules: tuple[str, ...] = tuple(dict.fromkeys(lowable))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: there are no resources to release."""

    def run(self, feeds: Mapping[str, np.ndarray], low: Collection[str]) -> dict[str, np.ndarray]:
        """Return the outputs by name with the given modules lowered and all others in float32."""
        watcher = _Rounding(self._castable, frozenset(low), self._constants)
        return self._evaluator.run(feeds, watcher=watcher, looks_for_nonfinite=False).outputs


class _RoundedConstants:
    """What constants become in float16: kept from run to run, as far as there is room."""

    def __init__(self, *, saturate: bool) -> None:
        self._saturate = saturate
        self._known: dict[Variable, torch.Tensor] = {}
        self._room = _MOST_KEPT

    def of(self, variable: Variable, value: torch.Tensor) -> torch.Tensor:
        """Return a constant's rounded value."""
        if (known := self._known.get(variable)) is not None:
            return known
        found = _rounded_constant(value, saturate=self._saturate)
        if found.nbytes <= self._room:
            self._room -= found.nbytes
            self._known[variable] = found
        return found


class _Rounding:
    """Rounds what lowered operations take and give. Every variable is given once in a run, and more
    often only in the bodies of loops.
    """

    def __init__(
        self,
        castable: Mapping[str, frozenset[str]],
        low: frozenset[str],
        constants: _RoundedConstants,
    ) -> None:
        self._castable = castable
        self._low = low
        self._constants = constants
        self._is_round: set[Variable] = set()

    def _rounds(self, step: ProgramStep) -> bool:
        return step.module in self._low and step.name in self._castable

    def taken(
        self, step: ProgramStep, name: str, variable: Variable, value: torch.Tensor
    ) -> torch.Tensor:
        if (
            value.dtype != torch.float32
            or not self._rounds(step)
            or name not in self._castable[step.name]
        ):
            return value
        if variable.op is not None and is_constant(variable.op.op_type):
            return self._constants.of(variable, value)
        return value if variable in self._is_round else value.half().float()

    def given(
        self, step: ProgramStep, result: StepResult, computed: torch.Tensor, stored: torch.Tensor
    ) -> torch.Tensor:
        del computed
        if stored.dtype != torch.float32 or not self._rounds(step):
            return stored
        self._is_round.add(result.variable)
        return stored.half().float()


def _rounded_constant(value: torch.Tensor, *, saturate: bool) -> torch.Tensor:
    if saturate:
        value = torch.where(value.isfinite(), value.clamp(-FLOAT16_LARGEST, FLOAT16_LARGEST), value)
    rounded = value.half().float()
    if value.numel() < _GUARDED:
        lost = (rounded == 0) & (value.abs() > np.finfo(np.float32).smallest_subnormal)
        rounded = torch.where(lost, torch.sign(value) * _SMALLEST, rounded)
    return rounded


def _cast_parameters(operation: Any, *, saturate: bool) -> frozenset[str]:  # noqa: ANN401 - coremltools' Operation
    """Return the arguments that coremltools casts to float16; empty if it leaves the operation
    unchanged.
    """
    from coremltools.converters.mil.mil.passes.defs.quantization import FP16ComputePrecision

    transform = FP16ComputePrecision()
    unsupported = operation.op_type in transform._UNSUPPORTED_FP16_OPS  # noqa: SLF001 - coremltools' own list
    if unsupported or (not saturate and transform.fp16_overflow(operation)):
        return frozenset()
    return frozenset(
        name
        for name, given in operation.inputs.items()
        if given is not None
        and _holds_floats(given)
        and transform.should_cast_parameter(operation, name)
    )


def _holds_floats(given: Any) -> bool:  # noqa: ANN401 - a Var or several
    several = given if isinstance(given, list | tuple) else (given,)
    return any(each.is_tensor_or_scalar_of(dtype="fp32") for each in several)
