"""A conversion pass for coremltools: quotients of floats by one that are rounded down.

coremltools 9.0 takes a division by one for one without effect, rounded or not: `x // 1.0` becomes
x, and `x % 1.0` zero.
"""

from typing import Any

import numpy as np

FLOORS = "convkit::floor_of_quotients_by_one"
BEFORE = "common::noop_elimination"


def register() -> str:
    """Register the pass with coremltools if necessary; return its name."""
    from coremltools.converters.mil.mil.passes.graph_pass import AbstractGraphPass
    from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY

    if FLOORS not in PASS_REGISTRY:

        class FloorOfQuotientsByOne(AbstractGraphPass):
            """Writes such quotients as floors, in every function."""

            def apply(self, prog: Any) -> None:  # noqa: ANN401 - coremltools has no types
                for function in prog.functions.values():
                    _rewrite(function)

        namespace, _, name = FLOORS.partition("::")
        PASS_REGISTRY.add(namespace, FloorOfQuotientsByOne, override=False, name=name)
    return FLOORS


def _rewrite(block: Any) -> None:  # noqa: ANN401
    from coremltools.converters.mil.mil import Builder, types

    with block:
        for operation in list(block.operations):
            for inner in operation.blocks:
                _rewrite(inner)
            if operation.op_type != "floor_div" or not types.is_float(operation.x.dtype):
                continue
            (result,) = operation.outputs
            divisor = operation.y.val
            if divisor is None or not np.all(divisor == 1) or result.rank > operation.x.rank:
                continue
            floor = Builder.floor(x=operation.x, name=operation.name, before_op=operation)
            if block.try_replace_uses_of_var_after_op(
                anchor_op=operation, old_var=result, new_var=floor
            ):
                block.remove_ops([operation])
