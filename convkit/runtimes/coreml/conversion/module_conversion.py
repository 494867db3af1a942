"""A torch module becomes an ML program that serves the contract."""

import contextlib
import dataclasses
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch

from convkit.protocol.messages import LowPrecision
from convkit.runtimes.coreml.conversion.control_flow import all_nodes, make_savable, readable
from convkit.runtimes.coreml.conversion.declared_shapes import input_types, output_types
from convkit.runtimes.coreml.conversion.missing_operators import register_missing_operators
from convkit.runtimes.coreml.conversion.operation_origins import failed_node, origin_of, refused
from convkit.runtimes.coreml.conversion.operation_selection import selector
from convkit.runtimes.coreml.conversion.passes import exact_pipeline, failed_optimization
from convkit.runtimes.coreml.conversion.recorded_constants import LargeConstant, recording_pipeline
from convkit.runtimes.coreml.conversion.states import state_types
from convkit.runtimes.coreml.conversion.traced_program import TracedProgram, simplified, traced
from convkit.runtimes.coreml.packages.image_inputs import ImageModule, with_image_types
from convkit.runtimes.coreml.packages.options import Shapes
from convkit.runtimes.coreml.packages.tensor_names import (
    program_names,
    with_contract_names,
    with_program_names,
)
from convkit.worker.building.held_states import State
from convkit.worker.building.stateful_module import StatefulModule
from convkit.worker.exporters.dynamic_trace import innermost
from convkit.worker.exporters.export_job import WRAPPER, UnexportableError
from convkit.worker.job_context import StageFailedError
from convkit.worker.mil.coremltools_import import load_library, quiet
from convkit.worker.mil.operation_modules import modules_by_tensor
from convkit.worker.mil.program import Program, program_of

if TYPE_CHECKING:
    from convkit.worker.original.contract_module import ContractModule

# Operators that are decomposed, one after the other, and optimizations that are left out, because
# coremltools fails on them.
_MOST_SIMPLIFIED = 8


@dataclasses.dataclass(frozen=True)
class ModuleConversion:
    """A module to convert, accepted inputs, and options. `minimum` is a deployment target; no
    precision: float32. `root` is the folder of the model's own source files. `states` are those of
    a StatefulModule, `images` the inputs of ImageType.
    """

    module: "ContractModule | ImageModule | StatefulModule"
    examples: tuple[torch.Tensor, ...]
    minimum: str = "iOS17"
    shapes: Shapes = "range"
    precision: LowPrecision | None = None
    root: str | None = None
    states: tuple[State, ...] = ()
    images: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Converted:
    """A package in memory: coremltools' MLModel, not loaded, and its program.

    `modules` gives module paths by tensor name, `constants` what the low precision cannot hold;
    `source` is what was converted. `names` are the model's own, by the contract's, if they differ;
    the program's inputs and outputs go by the contract's.
    """

    model: Any
    program: Program
    modules: dict[str, str]
    constants: tuple[LargeConstant, ...]
    source: TracedProgram
    names: dict[str, str]

    @property
    def refusal(self) -> str | None:
        """Why torch.export could not trace the module, as in `TracedProgram`."""
        return self.source.refusal


def convert(conversion: ModuleConversion) -> Converted:
    """Trace a module and convert it.

    Raises UnexportableError for axes that the model fixes or restricts, and for an operator that
    coremltools cannot convert; StageFailedError for anything else that torch cannot trace or
    coremltools cannot convert.
    """
    return convert_traced(conversion, trace_module(conversion))


def trace_module(conversion: ModuleConversion) -> TracedProgram:
    """Trace a module; its precision and shapes do not matter. Raises like `convert`."""
    load_library()
    with quiet():
        register_missing_operators()
        module = conversion.module
        examples = _served_examples(conversion)
        return traced(module, examples, module.contract, WRAPPER, conversion.root)


def _served_examples(conversion: ModuleConversion) -> tuple[torch.Tensor, ...]:
    """Return the examples with bytes as int32, which packages take in place of uint8: coremltools
    9.0 does not read a trace with the latter. Where a module relies on bytes that wrap around,
    verification finds it.
    """
    return tuple(
        each.to(torch.int32) if each.dtype is torch.uint8 else each for each in conversion.examples
    )


def convert_traced(conversion: ModuleConversion, source: TracedProgram) -> Converted:
    """Convert what `trace_module` returned, any number of times. Raises like `convert`."""
    left_out: set[str] = set()
    with quiet():
        for left in range(_MOST_SIMPLIFIED, -1, -1):
            try:
                return _converted(conversion, source, left_out)
            except Exception as error:
                failed = failed_optimization(error)
                if left and failed is not None and failed not in left_out:
                    left_out.add(failed)
                    continue
                simpler = simplified(source, error, WRAPPER, conversion.root) if left else None
                if simpler is None:
                    raise _refused(error, source, conversion) from error
                source = simpler
    raise AssertionError("the last attempt returns or raises")


def _converted(
    conversion: ModuleConversion, source: TracedProgram, left_out: Collection[str] = ()
) -> Converted:
    """Convert a traced module, without the optimizations that are `left_out`. Raises what
    coremltools does.
    """
    import coremltools as ct

    low = conversion.precision
    names = program_names(conversion.module.contract)
    contract = with_program_names(conversion.module.contract, names)
    images = [names.get(name, name) for name in conversion.images]
    found: list[LargeConstant] = []
    options: dict[str, Any] = {
        "compute_precision": ct.precision.FLOAT32,
        "pass_pipeline": exact_pipeline(),
    }
    if low is not None:
        is_half = selector(low, source.module_of)
        options["compute_precision"] = ct.transform.FP16ComputePrecision(op_selector=is_half)
        options["pass_pipeline"] = recording_pipeline(
            found, saturate=low.saturate, is_half=is_half, module_of=source.module_of
        )
    options["pass_pipeline"].remove_passes(left_out)
    exported = source.exported
    with contextlib.nullcontext() if exported is None else readable(exported):
        model = ct.convert(
            source.program,
            convert_to="mlprogram",
            inputs=with_image_types(input_types(contract, conversion.shapes), images),
            outputs=output_types(contract),
            minimum_deployment_target=getattr(ct.target, conversion.minimum),
            skip_model_load=True,
            states=state_types(conversion.module, conversion.states) or None,
            **options,
        )
    held = model._mil_program  # noqa: SLF001 - what coremltools' own tools read; a saved package forgets modules
    modules = modules_by_tensor(held, source.module_of)
    make_savable(held)
    program = with_contract_names(program_of(held), names)
    return Converted(model, program, modules, tuple(found), source, names)


def _refused(
    error: Exception, source: TracedProgram, conversion: ModuleConversion
) -> StageFailedError:
    """Return the error of a failed conversion: V103 at the operator, if that is known; of a module
    that was followed on an example, why it had to be.
    """
    import coremltools as ct

    failed = f"coremltools {ct.__version__} cannot convert"
    if source.exported is None and source.refused:
        return UnexportableError(source.refused)
    if source.exported is None:
        followed = f"followed on an example, since {source.refusal}"
        return StageFailedError(f"{failed} the model ({followed}): {innermost(error)}")
    names = {str(node.name): node for node in all_nodes(source.exported)}
    node = failed_node(error, names)
    if node is None:
        return StageFailedError(f"{failed} the model: {innermost(error)}")
    origin = origin_of(node, WRAPPER, conversion.root)
    return UnexportableError([refused(origin, f"{failed} {origin}: {innermost(error)}")])
