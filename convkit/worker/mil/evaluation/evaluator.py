"""Evaluates ML programs with torch on the CPU.

Semantics: an operation computes from its stored inputs, in the arithmetic of `arithmetic.py`, which
is the same on every processor; every result is rounded to its declared type (IEEE 754, to nearest
even). This models the rounding of storage, which every device performs. How a device accumulates
inside an operation is not modeled.
"""

import dataclasses
from collections.abc import Mapping, MutableMapping, Sequence
from typing import Protocol

import numpy as np
import torch

from convkit.worker.mil.constant_values import ConstantValues
from convkit.worker.mil.element_values import TensorList, Value, as_array, as_tensor, type_name
from convkit.worker.mil.evaluation.execution_plan import (
    Plan,
    ProgramStep,
    StepResult,
    Variable,
    make_plan,
)
from convkit.worker.mil.evaluation_trace import Counts, NonFinite, Trace, count_nonfinite
from convkit.worker.mil.kernels import arithmetic
from convkit.worker.mil.kernels.operation_call import Argument, OperationCall, RunBlock
from convkit.worker.mil.program import Feature, Program
from convkit.worker.mil.program_errors import EvaluationError, FeedMismatchError

# Raised by torch and Python for incompatible arguments.
_KERNEL_ERRORS = (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)


@dataclasses.dataclass(frozen=True)
class ProgramEvaluation:
    """Outputs by name, in their declared types; states as they are after the call."""

    outputs: dict[str, np.ndarray]
    states: dict[str, np.ndarray]
    trace: Trace


class Evaluator:
    """A program that is ready to run. Keeps no state between calls: states are passed in and
    returned.

    `modules` maps tensor names to module paths (see `modules_by_tensor`), for the trace. `wide`:
    what is declared as float32 is computed and stored in float64, and so are the outputs. Raises
    UnsupportedOperation.
    """

    def __init__(
        self, program: Program, modules: Mapping[str, str] | None = None, *, wide: bool = False
    ) -> None:
        self._program = program
        self._wide = wide
        self.plan = make_plan(program.function, modules or {})
        self._constants = ConstantValues()

    def run(
        self,
        feeds: Mapping[str, np.ndarray],
        states: Mapping[str, np.ndarray] | None = None,
        *,
        watcher: "Watcher | None" = None,
        looks_for_nonfinite: bool = True,
    ) -> ProgramEvaluation:
        """Evaluate on inputs by name, starting from states by name (default: zeros), which may also
        be among the feeds. Without `looks_for_nonfinite`, the trace has no values that are not
        finite.

        Raises FeedMismatchError for inputs that do not fit, EvaluationError if an operation cannot
        be computed.
        """
        names = {each.name for each in self._program.states}
        states = {**{name: feeds[name] for name in feeds.keys() & names}, **(states or {})}
        feeds = {name: array for name, array in feeds.items() if name not in names}
        inputs = _bound(self._program.inputs, feeds, "input")
        if missing := [each.name for each in self._program.inputs if each.name not in inputs]:
            raise FeedMismatchError(f"no feed for the input {', '.join(missing)}")
        held = {each.name: _zeros(each) for each in self._program.states}
        held |= _bound(self._program.states, states, "state")
        with torch.inference_mode():
            run = _Run(
                self._constants,
                held,
                watcher,
                wide=self._wide,
                looks_for_nonfinite=looks_for_nonfinite,
            )
            results = run.block(self.plan, [inputs[each.name] for each in self._program.inputs])
        outputs = {
            each.name: _as_declared(value, var, wide=self._wide)
            for each, value, var in zip(
                self._program.outputs, results, self.plan.outputs, strict=True
            )
        }
        variables = self._program.function.inputs
        final = {name: _as_declared(value, variables[name]) for name, value in held.items()}
        return ProgramEvaluation(outputs, final, run.trace())


class Watcher(Protocol):
    """Observes the operands and results of operations, and may replace their values.

    Computed values are those of float32: float64 does not leave a kernel.
    """

    def taken(
        self, step: ProgramStep, name: str, variable: Variable, value: torch.Tensor
    ) -> torch.Tensor:
        """Return the value to use for a step's argument, given the program's value: by default that
        value.
        """
        del step, name, variable
        return value

    def given(
        self, step: ProgramStep, result: StepResult, computed: torch.Tensor, stored: torch.Tensor
    ) -> torch.Tensor:
        """Return the value to use for a step's result, given the computed value and its rounding to
        the declared type.
        """
        ...


class _Run:
    """One call: the live variables, and the observations so far."""

    def __init__(
        self,
        constants: ConstantValues,
        states: MutableMapping[str, torch.Tensor],
        watcher: "Watcher | None" = None,
        *,
        wide: bool = False,
        looks_for_nonfinite: bool = True,
    ) -> None:
        self._constants = constants
        self._looks = looks_for_nonfinite
        self._wide = wide
        self._watcher = watcher
        self._states = states
        self._alive: dict[Variable, Value] = {}
        self._tainted: set[Variable] = set()
        self._found: dict[Variable, NonFinite] = {}
        self._operations = 0
        self._bytes = 0
        self._peak = 0

    def trace(self) -> Trace:
        """Return the observations so far."""
        return Trace(tuple(self._found.values()), self._operations, self._peak)

    def block(self, plan: Plan, inputs: Sequence[Value]) -> list[Value]:
        """Run a block on its inputs and return its outputs."""
        for var, value in zip(plan.inputs, inputs, strict=True):
            self._keep(var, value)
            if self._looks and isinstance(value, torch.Tensor) and count_nonfinite(value):
                self._tainted.add(var)
        for step in plan.steps:
            self._step(step)
        outputs = [self._value(var) for var in plan.outputs]
        for var in plan.drops:
            self._drop(var)
        return outputs

    def _step(self, step: ProgramStep) -> None:
        self._operations += 1
        call = OperationCall(
            arguments={name: self._argument(name, var, step) for name, var in step.arguments},
            results=len(step.results),
            blocks=tuple(self._runner(each) for each in step.blocks),
            states=self._states,
            state_names=step.states,
        )
        try:
            given = step.kernel(call)
        except (EvaluationError, *_KERNEL_ERRORS) as error:
            raise EvaluationError(f"{step.operation} {step.name}: {error}") from error
        del call  # and with it the widened operands
        values = [given] if isinstance(given, torch.Tensor | TensorList | str) else list(given)
        if len(values) != len(step.results):
            raise EvaluationError(
                f"{step.operation} {step.name} gave {len(values)} results, not {len(step.results)}"
            )
        for result, value in zip(step.results, values, strict=True):
            self._give(step, result, value)
        for var in step.frees:
            self._drop(var)

    def _give(self, step: ProgramStep, result: StepResult, value: Value) -> None:
        """Round a result to its declared type, record non-finite values, and store it."""
        if not isinstance(value, torch.Tensor):
            self._keep(result.variable, value)
            return
        if self._wide and result.storage in (None, torch.float32):
            stored = value = arithmetic.widened(value)
        else:
            value = arithmetic.single(value, step.arithmetic)
            stored = arithmetic.stored(value, result.storage)
        if self._watcher is not None:
            stored = self._watcher.given(step, result, value, stored)
        if result.shape is not None and not _fits(result.shape, stored.shape):
            raise EvaluationError(
                f"{step.operation} {step.name} gave shape {list(stored.shape)}; declared is"
                f" {list(result.shape)}"
            )
        counts = count_nonfinite(stored, value) if self._looks else None
        if counts is None:
            self._tainted.discard(result.variable)
        else:
            if not step.blocks:  # a block's results were recorded inside it
                self._record(step, result, stored, counts)
            self._tainted.add(result.variable)
        self._keep(result.variable, stored)

    def _record(
        self, step: ProgramStep, result: StepResult, stored: torch.Tensor, counts: Counts
    ) -> None:
        before = self._found.get(result.variable)
        if before is not None:
            self._found[result.variable] = dataclasses.replace(before, times=before.times + 1)
            return
        self._found[result.variable] = NonFinite(
            operation=step.operation,
            tensor=result.name,
            module=step.module,
            dtype=result.type,
            elements=stored.numel(),
            nan=counts.nan,
            infinite=counts.infinite,
            overflowed=counts.overflowed,
            made_here=not self._takes_nonfinite(step),
        )

    def _takes_nonfinite(self, step: ProgramStep) -> bool:
        for _, var in step.arguments:
            for each in var if isinstance(var, tuple) else (var,):
                if each in self._tainted:
                    return True
                if each not in self._alive and not self._constants.is_finite(each):
                    return True
        return False

    def _argument(
        self, name: str, var: Variable | tuple[Variable, ...], step: ProgramStep
    ) -> Argument:
        if isinstance(var, tuple):
            return tuple(self._argument_value(name, each, step) for each in var)
        return self._argument_value(name, var, step)

    def _argument_value(self, name: str, var: Variable, step: ProgramStep) -> Value:
        value = self._value(var)
        if self._watcher is not None and isinstance(value, torch.Tensor):
            value = self._watcher.taken(step, name, var, value)
        kernels_own = name in step.as_stored
        if self._wide and isinstance(value, torch.Tensor) and not kernels_own:
            return arithmetic.widened(value)
        return value if kernels_own else arithmetic.operand(value, step.arithmetic)

    def _value(self, var: Variable) -> Value:
        return self._alive[var] if var in self._alive else self._constants.get(var)

    def _runner(self, plan: Plan) -> RunBlock:
        return lambda inputs: self.block(plan, inputs)

    def _keep(self, var: Variable, value: Value) -> None:
        self._drop(var)
        self._alive[var] = value
        self._bytes += _size(value)
        self._peak = max(self._peak, self._bytes)

    def _drop(self, var: Variable) -> None:
        if var in self._alive:
            self._bytes -= _size(self._alive.pop(var))


def _bound(
    features: Sequence[Feature], arrays: Mapping[str, np.ndarray], kind: str
) -> dict[str, torch.Tensor]:
    """Return arrays as tensors, by name; raises FeedMismatchError for an unknown or unfitting
    one.
    """
    known = {each.name: each for each in features}
    bound = {}
    for name, array in arrays.items():
        if name not in known:
            raise FeedMismatchError(
                f"no {kind} {name!r}; the program's are {', '.join(known) or 'none'}"
            )
        feature = known[name]
        if array.dtype != np.dtype(feature.dtype):
            raise FeedMismatchError(f"the {kind} {name} takes {feature.dtype}, not {array.dtype}")
        refusal = feature.refusal(array.shape)
        if refusal is not None:
            raise FeedMismatchError(
                f"the {kind} {name} does not take shape {list(array.shape)}: {refusal}"
            )
        bound[name] = as_tensor(array)
    return bound


def _zeros(feature: Feature) -> torch.Tensor:
    sizes = [size for size in feature.shape or () if size is not None]
    return as_tensor(np.zeros(sizes, dtype=feature.dtype))


def _as_declared(value: Value, var: Variable, *, wide: bool = False) -> np.ndarray:
    if not isinstance(value, torch.Tensor):
        raise EvaluationError(f"the output {var.name} is not a tensor")
    if wide and value.dtype == torch.float64:
        return arithmetic.same_nan(value.numpy().copy())
    return arithmetic.same_nan(as_array(value, type_name(var.sym_type)))


def _fits(declared: tuple[int | None, ...], shape: Sequence[int]) -> bool:
    return len(declared) == len(shape) and all(
        size is None or size == have for size, have in zip(declared, shape, strict=True)
    )


def _size(value: Value) -> int:
    match value:
        case torch.Tensor():
            return value.numel() * value.element_size()
        case TensorList():
            return sum(
                each.numel() * each.element_size() for each in value.elements if each is not None
            )
        case _:
            return 0
