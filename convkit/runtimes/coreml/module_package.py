"""A torch module becomes a Core ML package: what `ModuleRuntime` asks of Core ML."""

import dataclasses
from pathlib import Path
from typing import Any

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import BuildRequest, Device, LowPrecision
from convkit.protocol.module_patterns import unmatched_patterns
from convkit.runtimes.coreml.conversion.declared_shapes import served_contract as declared
from convkit.runtimes.coreml.conversion.fixed_axes import convert_or_explain
from convkit.runtimes.coreml.conversion.module_conversion import Converted, ModuleConversion
from convkit.runtimes.coreml.conversion.operation_selection import operation_paths
from convkit.runtimes.coreml.conversion.recorded_constants import write_constants
from convkit.runtimes.coreml.conversion.states import write_states
from convkit.runtimes.coreml.packages.image_inputs import ImageModule, images_of, write_images
from convkit.runtimes.coreml.packages.module_sidecar import write_modules
from convkit.runtimes.coreml.packages.options import ProgramOptions
from convkit.runtimes.coreml.packages.package_metadata import write_metadata
from convkit.runtimes.coreml.packages.tensor_names import renaming_finding, write_names
from convkit.runtimes.coreml.session import MODEL_FILE, EvaluatedProgram
from convkit.worker.building.held_states import State
from convkit.worker.building.stateful_module import StatefulModule, states_of
from convkit.worker.exporters.axis_lines import with_lines
from convkit.worker.exporters.export_job import UnexportableError
from convkit.worker.mil.package_identity import make_canonical
from convkit.worker.mil.program import computes_in
from convkit.worker.mil.program_errors import UnsupportedOperation
from convkit.worker.original.contract_module import ContractModule
from convkit.worker.original.loading.transformers_folder import can_choose_sdpa
from convkit.worker.original.probing.prepared_model import PreparedModel
from convkit.worker.precision.pattern_findings import unmatched_findings
from convkit.worker.runtime_interface.sessions import UnjudgedError

__all__ = ["MODEL_FILE", "convert", "declared", "open"]

# The programs' names for low-precision types.
_TYPES = {"float16": "fp16"}


def open(path: Path, device: Device, options: ProgramOptions) -> EvaluatedProgram:  # noqa: A001
    """Load a package into the evaluator; raises ModelRefusedError, UnjudgedError."""
    del device, options
    try:
        return EvaluatedProgram(path)
    except UnsupportedOperation as error:
        raise UnjudgedError(str(error)) from error


def convert(
    prepared: PreparedModel, request: BuildRequest[ProgramOptions], file: Path
) -> list[Finding]:
    """Convert a model and save it as a package, with notes on what its callers must know.

    Raises UnexportableError at the line that coremltools refuses.
    """
    options = request.options
    conversion = _conversion(prepared, request)
    low = conversion.precision
    try:
        converted = convert_or_explain(conversion, prepared.probe.sizes)
    except UnexportableError as error:
        found = with_lines(
            error.findings,
            prepared.module,
            prepared.examples,
            prepared.probe,
            prepared.loaded.source_root,
        )
        raise UnexportableError(found) from error
    findings = [] if converted.refusal is None else [_followed(converted.refusal)]
    # A program of whole numbers has nothing that could be lower.
    has_full = computes_in(converted.program, "fp32")
    if low is not None and has_full and not computes_in(converted.program, _TYPES[low.default]):
        findings.append(_nothing_low(low))
    findings += _unmatched(low, options, converted, prepared)
    model = converted.model
    if options.compression is not None:
        from convkit.runtimes.coreml.compression import compress  # its tools are slow to import

        model = compress(model, converted.program, options.compression, converted.modules)
    if converted.names:
        findings.append(renaming_finding(converted.names))
    _write_metadata(model, request.contract, converted, conversion)
    model.save(str(file))
    make_canonical(file)
    write_modules(file.parent, converted.modules)
    assert request.original is not None  # it was loaded
    sdpa = can_choose_sdpa(request.original.source, prepared.loaded.module)
    write_constants(
        file.parent,
        [dataclasses.replace(each, can_choose_sdpa=sdpa) for each in converted.constants],
    )
    return findings


def _write_metadata(
    model: Any,  # noqa: ANN401 - an MLModel
    contract: Contract,
    converted: Converted,
    conversion: ModuleConversion,
) -> None:
    """Write what callers must know into the package's metadata."""
    write_metadata(model, contract)
    if converted.names:
        write_names(model, converted.names)
    if conversion.states:
        write_states(model, conversion.states)
    if conversion.images:
        write_images(model, conversion.images)


def _conversion(prepared: PreparedModel, request: BuildRequest[ProgramOptions]) -> ModuleConversion:
    """Return what is converted: the model, with images as inputs and states if the target has
    them.
    """
    options = request.options
    module: ContractModule | ImageModule | StatefulModule = prepared.module
    examples = prepared.probe.inputs
    images = images_of(request.contract) if options.images else ()
    states: tuple[State, ...] = ()
    if images:
        module = ImageModule(prepared.module, images)
        examples = module.examples(examples)
    if options.states:
        assert request.steps is not None  # the target says so
        states = states_of(request.contract, request.steps)
        held = {state.input_at for state in states}
        module = StatefulModule(module, states)
        examples = tuple(each for place, each in enumerate(examples) if place not in held)
    return ModuleConversion(
        module,
        examples,
        options.minimum,
        options.shapes,
        precision=request.precision if isinstance(request.precision, LowPrecision) else None,
        root=prepared.loaded.source_root,
        states=states,
        images=images,
    )


def _nothing_low(low: LowPrecision) -> Finding:
    kept = ", ".join(low.patterns) or "nothing"
    return Finding(
        "N207",
        f"no operation of the program computes in {low.default}: keep_float32 has {kept}",
        Place(),
        {"keep_float32": list(low.patterns)},
        Remedy("Narrow keep_float32, or set precision: float32."),
    )


def _unmatched(
    low: LowPrecision | None, options: ProgramOptions, converted: Converted, prepared: PreparedModel
) -> list[Finding]:
    """Return N206 for patterns that match neither a module of the program nor one of the model,
    whose operations coremltools may have removed.
    """
    paths = {*converted.modules.values(), *dict(prepared.module.model.named_modules())}
    operations = set(operation_paths(converted.program, converted.modules).values())
    findings = (
        unmatched_findings(unmatched_patterns(low.patterns, paths | operations)) if low else []
    )
    if options.compression is not None:
        unmatched = unmatched_patterns(options.compression.keep, paths)
        findings += unmatched_findings(unmatched, "compression.keep")
    return findings


def _followed(refusal: str) -> Finding:
    return Finding(
        "E212",
        f"the model was traced on one example, because torch.export failed: {refusal}",
        Place(),
        {"refusal": refusal},
        Remedy("Write branches with torch.where or torch.cond, and take sizes from tensor.shape."),
    )
