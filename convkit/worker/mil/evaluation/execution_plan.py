"""Compiles a program's block for execution: the inputs, results and released variables of each
step.
"""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from convkit.worker.mil.element_values import STORAGE, type_name
from convkit.worker.mil.kernels.arithmetic import Arithmetic
from convkit.worker.mil.kernels.kernel_registry import KERNELS, WIDENED_IN_PARTS, arithmetic_of
from convkit.worker.mil.kernels.operation_call import Kernel
from convkit.worker.mil.operation_modules import module_path
from convkit.worker.mil.program import declared_shape, walk
from convkit.worker.mil.program_errors import UnsupportedOperation

# coremltools' variables are compared by identity, so dictionaries use them as keys directly.
Variable = Any
Names = Mapping[str, str]


@dataclasses.dataclass(frozen=True)
class StepResult:
    """A result of a step; `storage` is None for a list, `shape` is None if the rank is unknown."""

    variable: Variable
    name: str
    type: str
    storage: torch.dtype | None
    shape: tuple[int | None, ...] | None


@dataclasses.dataclass(frozen=True)
class ProgramStep:
    """One operation. `as_stored` are the arguments that its kernel widens itself, `frees` the
    variables that no later step reads; `source` is coremltools' own object.
    """

    operation: str
    name: str
    module: str
    kernel: Kernel
    arithmetic: Arithmetic
    as_stored: frozenset[str]
    arguments: tuple[tuple[str, Variable | tuple[Variable, ...]], ...]
    states: Names
    results: tuple[StepResult, ...]
    blocks: tuple["Plan", ...]
    frees: tuple[Variable, ...]
    source: Any


@dataclasses.dataclass(frozen=True)
class Plan:
    """A block. `drops` are its own variables still alive after its last step."""

    inputs: tuple[Variable, ...]
    steps: tuple[ProgramStep, ...]
    outputs: tuple[Variable, ...]
    drops: tuple[Variable, ...]


def make_plan(function: Any, modules: Names) -> Plan:  # noqa: ANN401 - coremltools' Function
    """Compile a function for execution; `modules` maps tensor names to module paths.

    Raises UnsupportedOperation, naming every operation that has no kernel.
    """
    unknown: dict[str, str] = {}
    for each in walk(function):
        if each.op_type not in KERNELS and not is_constant(each.op_type):
            name = each.outputs[0].name if each.outputs else each.name
            unknown.setdefault(each.op_type, modules.get(name) or module_path(each))
    if unknown:
        raise UnsupportedOperation(tuple(sorted(unknown)), unknown)
    from coremltools.converters.mil.mil import types

    inputs = tuple(var for var in function.inputs.values() if not types.is_state(var.sym_type))
    return _plan(function, inputs, modules)


def every_step(plan: Plan) -> Iterator[ProgramStep]:
    """Yield every step of a plan in order, with nested steps before their parent."""
    for step in plan.steps:
        for inner in step.blocks:
            yield from every_step(inner)
        yield step


def is_constant(kind: str) -> bool:
    """Return True if an operation type is a constant, plain or compressed."""
    return kind == "const" or kind.startswith("constexpr_")


def _plan(block: Any, inputs: tuple[Variable, ...], modules: Names) -> Plan:  # noqa: ANN401
    operations = [each for each in block.operations if not is_constant(each.op_type)]
    outputs = tuple(block.outputs)
    own = {*inputs, *(var for each in operations for var in each.outputs)}
    last: dict[Variable, int] = {}
    for place, operation in enumerate(operations):
        # a result that nothing reads is freed at once
        last |= dict.fromkeys(operation.outputs, place)
        last |= dict.fromkeys(_reads(operation), place)
    frees: list[list[Variable]] = [[] for _ in operations]
    for var, place in last.items():
        if var in own and var not in outputs:
            frees[place].append(var)
    steps = [
        _step(each, tuple(free), modules) for each, free in zip(operations, frees, strict=True)
    ]
    drops = {*inputs, *(var for var in outputs if var in own)}
    return Plan(inputs, tuple(steps), outputs, tuple(drops))


def _step(operation: Any, frees: tuple[Variable, ...], modules: Names) -> ProgramStep:  # noqa: ANN401
    from coremltools.converters.mil.mil import types

    arguments: list[tuple[str, Variable | tuple[Variable, ...]]] = []
    states = {}
    for name, var in _inputs(operation):
        if isinstance(var, tuple):
            arguments.append((name, var))
        elif types.is_state(var.sym_type):
            states[name] = var.name
        else:
            arguments.append((name, var))
    name = operation.outputs[0].name if operation.outputs else operation.name
    return ProgramStep(
        operation=operation.op_type,
        name=name,
        module=modules.get(name) or module_path(operation),
        kernel=KERNELS[operation.op_type],
        arithmetic=arithmetic_of(operation.op_type),
        as_stored=WIDENED_IN_PARTS.get(operation.op_type, frozenset()),
        arguments=tuple(arguments),
        states=states,
        results=tuple(_result(var) for var in operation.outputs),
        blocks=tuple(_plan(each, tuple(each.inputs), modules) for each in operation.blocks),
        frees=frees,
        source=operation,
    )


def _inputs(
    operation: Any,  # noqa: ANN401 - coremltools has no types
) -> Iterator[tuple[str, Variable | tuple[Variable, ...]]]:
    """Yield the arguments present. A leading underscore marks those used only by coremltools'
    builder.
    """
    for name, var in operation.inputs.items():
        if var is not None and not name.startswith("_"):
            yield name, tuple(var) if isinstance(var, list | tuple) else var


def _reads(operation: Any) -> Iterator[Variable]:  # noqa: ANN401
    """Yield every variable that an operation reads, including in its nested blocks."""
    for _, var in _inputs(operation):
        yield from var if isinstance(var, tuple) else (var,)
    for block in operation.blocks:
        yield from block.outputs
        for inner in block.operations:
            yield from _reads(inner)


def _result(var: Variable) -> StepResult:
    from coremltools.converters.mil.mil import types

    if types.is_list(var.sym_type):
        return StepResult(var, var.name, "list", None, None)
    kind = type_name(var.sym_type)
    return StepResult(var, var.name, kind, STORAGE[kind], declared_shape(var))
