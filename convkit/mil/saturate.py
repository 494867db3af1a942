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

SATURATION = "convkit::saturate_constants"
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


def saturating_pipeline(changed: list[SaturatedConstant], is_half: IsHalf | None = None) -> Any:  # noqa: ANN401
    """Return coremltools' default pass pipeline including the repair, for
    `ct.convert(pass_pipeline=...)`.

    The pass appends its changes to `changed`. `is_half` is the `op_selector` of the conversion's
    `FP16ComputePrecision`: operations kept in float32 keep their constants. Genuine infinities
    stay.
    """
    import coremltools as ct
    from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY

    if SATURATION not in PASS_REGISTRY:
        PASS_REGISTRY.add(*_registration(), override=False, name=SATURATION.partition("::")[2])
    pipeline = ct.PassPipeline.DEFAULT
    pipeline.insert_pass(pipeline.passes.index(BEFORE), SATURATION)
    pipeline.set_options(SATURATION, {"changed": changed, "is_half": is_half or (lambda _: True)})
    return pipeline


def _registration() -> tuple[str, type]:
    from coremltools.converters.mil.mil.passes.graph_pass import AbstractGraphPass

    class SaturateConstants(AbstractGraphPass):
        """The saturation pass; its options are set by name before it runs."""

        changed: list[SaturatedConstant]
        is_half: IsHalf

        def __init__(self) -> None:
            self.changed = []
            self.is_half = lambda _: True

        def apply(self, prog: Any) -> None:  # noqa: ANN401
            for function in prog.functions.values():
                self.changed += saturate_constants(function, self.is_half)

    return SATURATION.partition("::")[0], SaturateConstants


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
