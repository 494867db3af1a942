"""Repairs constants that float16 cannot represent, as a pass of coremltools' conversion.

coremltools 9.0 does not clamp: it treats a magnitude of 1e38 or more as infinity and casts it. If a
mask's infinity is then multiplied by zero (`0 * -inf`), the result is NaN. Saturated to float16's
largest number, such a mask still masks.

A large constant that is not a mask (a genuine factor of a million) is changed as well, which is
wrong: the result must be verified like any other, and `SaturatedConstant` reports the change.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

# The largest finite float16: (2 - 2^-10) * 2^15, IEEE 754.
FLOAT16_LARGEST = 65504.0

BEFORE = "common::add_fp16_cast"


@dataclasses.dataclass(frozen=True)
class SaturatedConstant:
    """A constant with `elements` finite values beyond float16 that were saturated, for the named
    operations.
    """

    constant: str
    elements: int
    lowest: float
    highest: float
    consumers: tuple[str, ...]


# Returns True if a coremltools Operation is to compute in float16.
IsHalf = Callable[[Any], bool]


def saturate_constants(block: Any, is_half: IsHalf) -> list[SaturatedConstant]:  # noqa: ANN401
    """Saturate the constants of a block, including nested blocks, for operations that compute in
    float16.
    """
    changed = []
    with block:
        for operation in list(block.operations):
            for inner in operation.blocks:
                changed += saturate_constants(inner, is_half)
            if operation.op_type == "const" and operation.outputs[0].is_tensor_or_scalar_of(
                dtype="fp32"
            ):
                saturated = _saturate_constant(operation, is_half)
                changed += [saturated] if saturated is not None else []
    return changed


def _saturate_constant(operation: Any, is_half: IsHalf) -> SaturatedConstant | None:  # noqa: ANN401
    """Give the constant's float16 consumers a saturated copy; the others keep the original."""
    from coremltools.converters.mil.mil import Builder

    constant = operation.outputs[0]
    values = np.asarray(constant.val)
    beyond = np.isfinite(values) & (np.abs(values) > FLOAT16_LARGEST)
    consumers = list(dict.fromkeys(each for each in constant.child_ops if is_half(each)))
    if not beyond.any() or not consumers:
        return None
    bounded = np.where(beyond, np.clip(values, -FLOAT16_LARGEST, FLOAT16_LARGEST), values).astype(
        np.float32
    )
    replacement = Builder.const(
        val=bounded if bounded.ndim else np.float32(bounded),
        name=operation.name + "_saturated",
        before_op=operation,
    )
    for consumer in consumers:
        _replace_input(consumer, constant, replacement)
    large = values[beyond]
    return SaturatedConstant(
        constant=constant.name,
        elements=int(beyond.sum()),
        lowest=float(large.min()),
        highest=float(large.max()),
        consumers=tuple(f"{each.op_type} {each.name}" for each in consumers),
    )


def _replace_input(consumer: Any, old: Any, new: Any) -> None:  # noqa: ANN401
    inputs = {}
    for name, given in consumer.inputs.items():
        if isinstance(given, list | tuple):
            if old in given:
                inputs[name] = tuple(new if each is old else each for each in given)
        elif given is old:
            inputs[name] = new
    consumer.set_inputs(no_check_var_types=True, **inputs)
