"""Selects the operations that compute in float16: converts module patterns to coremltools'
`op_selector`.
"""

from collections.abc import Callable
from typing import Any

from convkit.protocol.messages import LowPrecision
from convkit.protocol.module_patterns import matches
from convkit.worker.mil.operation_modules import ModuleOf

# Returns True if a coremltools operation is to compute in float16.
Selector = Callable[[Any], bool]


def stays_float32(module: str, precision: LowPrecision) -> bool:
    """Return True if a module's operations stay in float32."""
    return any(matches(pattern, module) for pattern in precision.patterns)


def selector(precision: LowPrecision, module_of: ModuleOf) -> Selector:
    """Return the `op_selector` for a precision.

    An operation without a known module was added by coremltools itself, and belongs to the root.
    """
    return lambda operation: not stays_float32(module_of(operation), precision)
