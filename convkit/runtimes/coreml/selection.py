"""Which operations compute in float16: a precision's module patterns as coremltools' `op_selector`."""

from collections.abc import Callable
from typing import Any

from convkit.mil.modules import ModuleOf
from convkit.precision.patterns import matches
from convkit.worker.protocol import LowPrecision

# Says of one of coremltools' operations whether it is to compute in float16.
Selector = Callable[[Any], bool]


def stays_float32(module: str, precision: LowPrecision) -> bool:
    """Say whether a module's operations stay in float32."""
    return any(matches(pattern, module) for pattern in precision.patterns)


def selector(precision: LowPrecision, module_of: ModuleOf) -> Selector:
    """Return the `op_selector` of a precision.

    An operation that no module is known of was made by coremltools itself; it belongs to the root.
    """
    return lambda operation: not stays_float32(module_of(operation), precision)
