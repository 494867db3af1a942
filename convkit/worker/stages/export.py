"""The export stage: model -> contract-checked ONNX (`model.onnx`, `model.onnx.data`)."""

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import onnx_ir

from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.messages import Exporter, ExportRequest, ExportResult, Original
from convkit.worker.exporters.adopted_file import adopt, check_structure
from convkit.worker.exporters.export_job import WRAPPER, ExportJob, UnexportableError
from convkit.worker.graph.duplicate_weights import duplicate_weights
from convkit.worker.graph.graph_contract import (
    carry_contract,
    graph_contract,
    order_inputs,
    rename_to_contract,
)
from convkit.worker.graph.graph_files import DATA_FILE, MODEL_FILE, write_model
from convkit.worker.graph.graph_weights import (
    count_elements,
    lift_weights,
    name_transposed,
    share_weights,
    strip_wrapper,
)
from convkit.worker.graph.module_scopes import name_scopes
from convkit.worker.graph.node_origins import tidy_metadata
from convkit.worker.graph.operator_probes import graph_operators
from convkit.worker.graph.rewriting.dimension_names import name_dimensions, take_declared_outputs
from convkit.worker.graph.rewriting.fixed_random_numbers import given_file
from convkit.worker.graph.rewriting.identity_removal import remove_identities
from convkit.worker.graph.rewriting.masked_softmax import mask_with_infinity
from convkit.worker.graph.rewriting.opset_conversion import convert_opset
from convkit.worker.graph.training_nodes import training_mode
from convkit.worker.job_context import Context, StageFailedError
from convkit.worker.original.contract_check import check_contract
from convkit.worker.precision.quantization.scales_and_zero_points import check_dequantization
from convkit.worker.runtime_interface.distinct_operators import write_operators

if TYPE_CHECKING:
    from convkit.worker.exporters.automatic_exporter import ExporterChoice
    from convkit.worker.original.loading.loaded_model import LoadedModel

InputOrder = Literal["signature", "recipe"]

_BOUNDARY = "exported graph"
_NOTHING = Contract((), (), ())


def run(request: ExportRequest, context: Context) -> tuple[ExportResult, list[Finding]]:
    """Export the model, or adopt its ONNX file, check the graph against the contract and write it.

    If findings already show that the model does not fit its contract, nothing is exported: the
    result's graph and the folder are empty.
    """
    if request.source.kind == "onnx":
        return _adopt(request, context)
    return _export(request, context)


def _adopt(request: ExportRequest, context: Context) -> tuple[ExportResult, list[Finding]]:
    context.progress("checking the ONNX file", done=0.1)
    try:
        with given_file(request.source) as path:
            model, doubts = adopt(path)
    except UnexportableError as error:
        return _nothing(request, 0), list(error.findings)
    if request.opset:
        model = convert_opset(model, request.opset)
    rename_to_contract(model, request.contract)
    tidy_metadata(model, wrapper="", root=None, keep_model_metadata=True)
    name_scopes(model)
    lift_weights(model)
    take_declared_outputs(model, request.contract)
    findings = _finish(model, request, context, input_order=request.input_order)
    findings += doubts
    findings += [_dead_input(name, matters=False) for name in dead_inputs(model)]
    findings += duplicate_weights(model)
    findings += check_dequantization(model)  # written by another tool's quantizer
    return _result(model, request, context, {}, count_elements(model)), findings


def _export(request: ExportRequest, context: Context) -> tuple[ExportResult, list[Finding]]:
    # Only this path needs the torch sources and exporters: an adopted file needs no torch.
    from convkit.worker.exporters.custom_translations import load_translations
    from convkit.worker.exporters.exporter_imports import import_exporter
    from convkit.worker.original.probing.input_influence import influences
    from convkit.worker.original.probing.prepared_model import Unfit, prepare
    from convkit.worker.original.settled_branches import SETTLED, settled_finding

    if request.exporter in ("torch", "auto"):
        import_exporter()
    original = Original(request.source, request.samples, request.input_order)
    prepared, findings = prepare(original, request.contract, context)
    if isinstance(prepared, Unfit):
        return _nothing(request, prepared.parameters), findings
    loaded, module, examples, base = (
        prepared.loaded,
        prepared.module,
        prepared.examples,
        prepared.probe,
    )
    context.progress(f"exporting with {request.exporter}", done=0.3)
    with tempfile.TemporaryDirectory(prefix="export-", dir=context.output.parent) as scratch:
        job = ExportJob(
            loaded,
            module,
            examples,
            base,
            request.opset,
            request.source.task,
            Path(scratch),
            load_translations(),
        )
        try:
            model, exporter, export_findings = _trace(job, request)
        except StageFailedError as error:
            found = _unexportable(job, request, error)
            if isinstance(found, list):
                return _nothing(request, prepared.parameters), [*findings, *found]
            model, exporter, export_findings = found.model, found.exporter, [found.finding()]
        findings += export_findings
        if (sides := SETTLED.get(module)) is not None:
            findings.append(settled_finding(sides))
        context.progress("checking and writing the graph", done=0.8)
        _tidy(model, exporter, request, loaded)
        findings += _finish(model, request, context, input_order="signature")
    findings = [_at_line(finding, job) for finding in findings]
    names = [spec.name for spec in request.contract.inputs]
    findings += [
        _dead_input(name, matters=influences(module, examples, base, names.index(name)))
        for name in dead_inputs(model)
        if name in names
    ]
    return _result(model, request, context, base.sizes, prepared.parameters), findings


def _trace(job: ExportJob, request: ExportRequest) -> tuple[onnx_ir.Model, Exporter, list[Finding]]:
    """Return the graph, its exporter, and the findings about the choice."""
    from convkit.worker.exporters.automatic_exporter import choose
    from convkit.worker.exporters.exporter_registry import REGISTRY

    if request.exporter == "auto":
        choice = choose(job)
        return choice.model, choice.exporter, [choice.finding()]
    model: onnx_ir.Model = REGISTRY[request.exporter].export(job)
    opset = model.opset_imports.get("")
    if opset != request.opset:
        raise StageFailedError(
            f"export.opset: the exporter {request.exporter} exported opset {opset} instead of"
            f" {request.opset}. Set export.opset: {opset}, or choose another exporter or release of"
            " it under tools."
        )
    return model, request.exporter, []


def _unexportable(
    job: ExportJob, request: ExportRequest, error: StageFailedError
) -> "list[Finding] | ExporterChoice":
    """Return why the model cannot be exported, and what works in its place; or that, if it may be
    used.

    Raises the error itself where nothing is known but its message.
    """
    findings = list(error.findings) if isinstance(error, UnexportableError) else []
    from convkit.worker.exporters.torch_exporter import untranslated
    from convkit.worker.original.probing.conversion_obstacles import blame

    # The line that an exporter names is kept, unless the model is not the same twice.
    placed = any(finding.place.source for finding in findings)
    blamed = blame(job.module, job.examples, job.probe, job.loaded.source_root)
    if blamed is not None and (not placed or blamed.code == "N303"):
        return [blamed]
    if request.exporter == "torch":
        from convkit.worker.exporters.torchscript_alternative import with_alternative
        from convkit.worker.original.probing.value_branches import value_dependent_lines

        # A trace follows one side of such a branch: no comparison would prove the other.
        lines = value_dependent_lines(job.module, job.probe.inputs, job.loaded.source_root)
        decides = any(finding.code == "E305" for finding in findings)
        if not lines or (findings and not decides):
            found = with_alternative(job, findings, str(error), takes_it=request.may_fall_back)
            if not isinstance(found, list):
                return found
            findings = found
    if not findings and (unknown := untranslated(job, str(error))) is not None:
        return [unknown]
    if not findings:
        raise error
    return findings


def _at_line(finding: Finding, job: ExportJob) -> Finding:
    """Return E207 with the line at which the original draws random values, where the graph does not
    have it.
    """
    if finding.code != "E207" or finding.place.source is not None:
        return finding
    from convkit.worker.original.probing.nondeterminism import unsteady_finding

    drawn = unsteady_finding(job.module, job.probe.inputs, job.loaded.source_root)
    if drawn is None or drawn.place.source is None:
        return finding
    place = dataclasses.replace(
        finding.place, module=drawn.place.module or finding.place.module, source=drawn.place.source
    )
    message = f"{finding.message} (at {drawn.place.source})"
    return dataclasses.replace(finding, message=message, place=place)


def _tidy(
    model: onnx_ir.Model, exporter: Exporter, request: ExportRequest, loaded: "LoadedModel"
) -> None:
    """Remove what depends on exporter and machine; apply the contract's names and order."""
    from convkit.worker.original.loading.archive_as_module import ScriptArchive

    unwrapped = exporter == "optimum" or isinstance(loaded.module, ScriptArchive)
    wrapper = "" if unwrapped else WRAPPER
    # TorchScript writes equal weights once and reads them through Identity nodes, which would hide
    # them from later stages.
    remove_identities(model)
    rename_to_contract(model, request.contract)
    order_inputs(model, request.contract)
    tidy_metadata(model, wrapper=wrapper, root=loaded.source_root)
    strip_wrapper(model, wrapper)
    mask_with_infinity(model)
    share_weights(model)
    name_transposed(model, loaded.module.state_dict())


def _finish(
    model: onnx_ir.Model, request: ExportRequest, context: Context, *, input_order: InputOrder
) -> list[Finding]:
    """Check the graph against the contract, embed the contract in it, and write it."""
    name_dimensions(model, request.contract)
    findings = check_contract(
        request.contract, graph_contract(model), _BOUNDARY, input_order=input_order
    )
    findings += training_mode(model)
    carry_contract(model, request.contract)
    write_model(model, context.output)
    if (weights := context.output / DATA_FILE).exists():
        context.complete(weights)
    write_operators(graph_operators(model), context.output)
    check_structure(context.output / MODEL_FILE, "export")
    return findings


def dead_inputs(model: onnx_ir.Model) -> list[str]:
    """Return the names of inputs that no node reads and that are not outputs."""
    outputs = {id(value) for value in model.graph.outputs}
    return [
        value.name or ""
        for value in model.graph.inputs
        if value.name not in model.graph.initializers
        and not value.uses()
        and id(value) not in outputs
    ]


def _dead_input(name: str, *, matters: bool) -> Finding:
    text = f"Nothing in the {_BOUNDARY} reads the input {name!r}"
    if matters:
        remedy = Remedy(
            "Check how the model uses it: a value that Python computes from the input became a"
            " constant."
        )
        return Finding(
            "C108",
            f"{text}, although it changes the original's outputs.",
            Place(name),
            remedy=remedy,
        )
    remedy = Remedy(f"Remove {name!r} from inputs, unless callers must be able to pass it.")
    return Finding("C112", f"{text}.", Place(name), remedy=remedy)


def _result(
    model: onnx_ir.Model,
    request: ExportRequest,
    context: Context,
    sizes: dict[str, int],
    parameters: int,
) -> ExportResult:
    files = [context.output / MODEL_FILE, context.output / DATA_FILE]
    return ExportResult(
        graph=graph_contract(model),
        opset=model.opset_imports.get("", request.opset),
        ir_version=model.ir_version,
        example_sizes=sizes,
        parameters=parameters,
        size_bytes=sum(file.stat().st_size for file in files if file.exists()),
    )


def _nothing(request: ExportRequest, parameters: int) -> ExportResult:
    return ExportResult(_NOTHING, request.opset, 0, {}, parameters, 0)
