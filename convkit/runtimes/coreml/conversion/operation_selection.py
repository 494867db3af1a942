"""Selects the operations that compute in float16: converts module patterns to coremltools'
`op_selector`.
"""

from collections.abc import Callable, Mapping
from typing import Any

from convkit.protocol.messages import LowPrecision
from convkit.protocol.module_patterns import matches, operation_path
from convkit.worker.mil.operation_modules import ModuleOf
from convkit.worker.mil.program import Program, walk

# Returns True if a coremltools operation is to compute in float16.
Selector = Callable[[Any], bool]


def stays_float32(module: str, precision: LowPrecision) -> bool:
    """Return True if a module's operations, or those of one type, stay in float32."""
    return any(matches(pattern, module) for pattern in precision.patterns)


def selector(precision: LowPrecision, module_of: ModuleOf) -> Selector:
    """Return the `op_selector` for a precision.

    An operation without a known module was added by coremltools itself, and belongs to the root.
    """
    return lambda operation: (
        not stays_float32(operation_path(module_of(operation), operation.op_type), precision)
    )


def operation_paths(program: Program, modules: Mapping[str, str]) -> dict[str, str]:
    """Return the path of every tensor's operation, by the tensor's name: its module, which
    `modules` gives, and its type.
    """
    return {
        var.name: operation_path(modules.get(var.name, ""), operation.op_type)
        for operation in walk(program.function)
        for var in operation.outputs
    }
