"""Records, during coremltools' conversion, the constants of a model that float16 cannot represent.

coremltools 9.0 treats magnitudes from 1e38 as infinity, keeps an operation with a constant between
65504 and that in float32, and replaces values that would become zero by the smallest number. A
saved float16 package contains infinities but not the original values, so a pass inspects them right
before the cast.
"""

import dataclasses
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from convkit.protocol.json_codec import CodecError, decode, encode
from convkit.runtimes.coreml.conversion.passes import half_pipeline
from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.operation_modules import ModuleOf
from convkit.worker.mil.program import walk
from convkit.worker.mil.saturated_constants import (
    BEFORE,
    FLOAT16_LARGEST,
    IsHalf,
    saturate_constants,
)

CONSTANTS_FILE = "constants.json"
RECORDING = "convkit::record_constants"
# From this magnitude on coremltools 9.0 writes infinity (FP16ComputePrecision.fp16_overflow).
TAKEN_FOR_INFINITY = 1e38

# The effect on a constant: infinity · float32: its operations stay in float32 · saturated:
# float16's largest number.
Fate = Literal["infinity", "float32", "saturated"]


@dataclasses.dataclass(frozen=True)
class RecordedConsumer:
    """An operation that consumes a constant: its type, its result, and its module."""

    op: str
    tensor: str
    module: str


@dataclasses.dataclass(frozen=True)
class LargeConstant:
    """A float32 constant with `beyond` finite elements outside float16; `extreme` is the largest of
    them. `can_choose_sdpa` tells whether the recipe can choose an attention without such a mask.
    """

    constant: str
    elements: int
    beyond: int
    extreme: float
    fate: Fate
    consumers: tuple[RecordedConsumer, ...]
    can_choose_sdpa: bool = False


def recording_pipeline(
    found: list[LargeConstant], *, saturate: bool, is_half: IsHalf, module_of: ModuleOf
) -> Any:  # noqa: ANN401 - a PassPipeline
    """Return the conversion's pass pipeline with a pass that appends to `found`, and saturates if
    requested.

    `is_half` is the conversion's `op_selector`: operations kept in float32 keep their constants.
    """
    from coremltools.converters.mil.mil.passes.pass_registry import PASS_REGISTRY

    if RECORDING not in PASS_REGISTRY:
        namespace, _, name = RECORDING.partition("::")
        PASS_REGISTRY.add(namespace, _pass_class(), override=False, name=name)
    pipeline = half_pipeline()
    pipeline.insert_pass(pipeline.passes.index(BEFORE), RECORDING)
    options = {"found": found, "saturate": saturate, "is_half": is_half, "module_of": module_of}
    pipeline.set_options(RECORDING, options)
    return pipeline


def _pass_class() -> type:
    from coremltools.converters.mil.mil.passes.graph_pass import AbstractGraphPass

    class RecordConstants(AbstractGraphPass):
        """Records; its options are set by name, before it runs."""

        found: list[LargeConstant]
        saturate: bool
        is_half: IsHalf
        module_of: ModuleOf

        def __init__(self) -> None:
            self.found = []
            self.saturate = False
            self.is_half = lambda _: True
            self.module_of = lambda _: ""

        def apply(self, prog: Any) -> None:  # noqa: ANN401
            for function in prog.functions.values():
                self.found += _large_constants(
                    function, self.is_half, self.module_of, saturate=self.saturate
                )
                if self.saturate:
                    saturate_constants(function, self.is_half)

    return RecordConstants


def _large_constants(
    function: Any,  # noqa: ANN401
    is_half: IsHalf,
    module_of: ModuleOf,
    *,
    saturate: bool,
) -> Iterator[LargeConstant]:
    for operation in walk(function):
        if operation.op_type != "const" or not operation.outputs[0].is_tensor_or_scalar_of(
            dtype="fp32"
        ):
            continue
        (constant,) = operation.outputs
        consumers = [each for each in dict.fromkeys(constant.child_ops) if is_half(each)]
        values = np.asarray(constant.val)
        magnitudes = np.abs(values)
        beyond = np.isfinite(values) & (magnitudes > FLOAT16_LARGEST)
        if not consumers or not beyond.any():
            continue
        outside = values[beyond]
        extreme = float(outside.flat[np.abs(outside).argmax()])
        fate: Fate = "infinity" if (magnitudes[beyond] >= TAKEN_FOR_INFINITY).all() else "float32"
        yield LargeConstant(
            constant=constant.name,
            elements=values.size,
            beyond=int(beyond.sum()),
            extreme=extreme,
            fate="saturated" if saturate else fate,
            consumers=tuple(
                RecordedConsumer(
                    each.op_type,
                    each.outputs[0].name if each.outputs else each.name,
                    module_of(each),
                )
                for each in consumers
            ),
        )


def write_constants(folder: Path, constants: Sequence[LargeConstant]) -> None:
    """Write the recorded constants next to the package."""
    (folder / CONSTANTS_FILE).write_text(
        json.dumps(encode(list(constants)), indent=1) + "\n", encoding="utf-8"
    )


def read_constants(folder: Path) -> tuple[LargeConstant, ...]:
    """Return the recorded constants; empty if the folder has none. Raises StageFailedError if
    damaged.
    """
    file = folder / CONSTANTS_FILE
    if not file.is_file():
        return ()
    try:
        return tuple(
            decode(LargeConstant, each) for each in json.loads(file.read_text(encoding="utf-8"))
        )
    except (OSError, TypeError, ValueError, CodecError) as error:
        raise StageFailedError(
            f"{file}: cannot be read ({error}); build again with --force"
        ) from error
