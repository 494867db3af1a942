"""torch.export and torch's ONNX exporter ("dynamo")."""

import re
import warnings

import onnx_ir
import torch

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.module_naming import module_at
from convkit.worker.exporters.decompositions.complex_pairs import (
    has_angles,
    has_complex,
    without_complex,
)
from convkit.worker.exporters.decompositions.decomposition_table import decomposed
from convkit.worker.exporters.decompositions.graph_rewriting import UnrewrittenError
from convkit.worker.exporters.decompositions.local_decompositions import decomposing_locally
from convkit.worker.exporters.decompositions.maps_as_scans import maps_as_scans
from convkit.worker.exporters.dynamic_trace import innermost, trace
from convkit.worker.exporters.export_job import ExportJob, UnexportableError
from convkit.worker.exporters.known_types import reading_known_types
from convkit.worker.exporters.onnxscript_speed import operators_first, without_parsing
from convkit.worker.exporters.open_sizes.recurrent_layers import open_steps
from convkit.worker.exporters.small_constants import optimize_keeping_constants
from convkit.worker.graph.graph_contract import name_in_order
from convkit.worker.graph.rewriting.guarded_attention import guard_attention
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.operation_places import place_of_operator
from convkit.worker.original.source_lines import source_line

# As torch's two exporters name it: `'aten::fft_rfft' to ONNX opset version 17 is not supported`,
# `No ONNX function found for <OpOverload(op='aten.fft_rfft', ...)>`.
_REFUSALS = (
    re.compile(r"operator '(?P<domain>\w+)::(?P<name>\w+)' to ONNX"),
    re.compile(r"No ONNX function found for <OpOverload\(op='(?P<domain>\w+)\.(?P<name>\w+)"),
)
# The domains of torch's own operators.
_OF_TORCH = frozenset({"aten", "prim", "prims", "torch", "quantized"})


def export(job: ExportJob) -> onnx_ir.Model:
    """Export with every axis symbolic.

    Raises UnexportableError with C106 for an axis that the model fixes, with C113 for one that it
    restricts, and with E305 for a decision about data; StageFailedError if torch.export cannot
    trace it.
    """
    with open_steps():
        return _model(job)


def _model(job: ExportJob) -> onnx_ir.Model:
    traced = trace(job.module, job.probe.inputs, job.contract, job.loaded.source_root)
    program = maps_as_scans(decomposed(traced))
    names = [spec.name for spec in job.contract.inputs]
    outputs = [spec.name for spec in job.contract.outputs]
    try:
        with (
            warnings.catch_warnings(),
            decomposing_locally(),
            reading_known_types(),
            without_parsing(),
        ):
            # torch's own deprecations and remarks on axis names, which the contract overrules.
            warnings.simplefilter("ignore")
            exported = _translated(program, job)
            guard_attention(exported.model)
            optimize_keeping_constants(exported.model, lambda: _optimized(exported))
            # torch renames an input that is an output too, and an output that is returned twice.
            name_in_order(exported.model.graph, names, outputs)
    except UnrewrittenError as error:
        raise UnexportableError([_complex(error, job)]) from error
    except Exception as error:
        raise StageFailedError(
            f"export: torch {torch.__version__} could not turn the traced model into ONNX:"
            f" {innermost(error)}"
        ) from error
    return exported.model


def _translated(program: torch.export.ExportedProgram, job: ExportJob) -> torch.onnx.ONNXProgram:
    """Translate a traced program. torch's exporter knows complex numbers around Fourier transforms;
    other operations on them, and angles of spectra, are translated as those on their parts. Raises
    UnrewrittenError.
    """
    if has_complex(program) and has_angles(program):
        return _exported(decomposed(without_complex(program)), job)
    try:
        return _exported(program, job)
    except torch.onnx.errors.OnnxExporterError:
        if not has_complex(program):
            raise
    return _exported(decomposed(without_complex(program)), job)


def _exported(program: torch.export.ExportedProgram, job: ExportJob) -> torch.onnx.ONNXProgram:
    exported = torch.onnx.export(
        program,
        dynamo=True,
        opset_version=job.opset,
        input_names=[spec.name for spec in job.contract.inputs],
        output_names=[spec.name for spec in job.contract.outputs],
        custom_translation_table=dict(job.translations) or None,
        optimize=False,
        verbose=False,
    )
    assert exported is not None
    return exported


def _complex(error: UnrewrittenError, job: ExportJob) -> Finding:
    """Return V103 for an operation on complex numbers that cannot be written on their parts."""
    node = error.node
    operator = str(node.target)
    source = source_line(str(node.meta.get("stack_trace") or ""), job.loaded.source_root)
    where = f" at {source}" if source else ""
    return Finding(
        "V103",
        f"a complex number{where}: {operator} has no translation to ONNX, nor to operations on real"
        " and imaginary parts",
        Place(source=source or None),
        {"operators": [operator]},
        Remedy(
            "Compute with real numbers: torch.view_as_real, a rotation by cos and sin in place of"
            " torch.polar, sums and products of real and imaginary parts."
        ),
    )


def _optimized(exported: torch.onnx.ONNXProgram) -> onnx_ir.Model:
    with operators_first():
        exported.optimize()
    return exported.model


def untranslated(job: ExportJob, error: str) -> Finding | None:
    """Return V103 if an exporter stopped at an operator; None for any other error."""
    match = next((found for each in _REFUSALS if (found := each.search(error))), None)
    if match is None:
        return None
    operator = f"{match['domain']}::{match['name']}"
    root = job.loaded.source_root
    place = place_of_operator(job.module, job.probe.inputs, match["name"], root)
    source, module = place or (None, "")
    where = f" ({module_at(module, source)})" if place else ""
    return Finding(
        "V103",
        f"the exporter has no translation of {operator}{where} to ONNX opset {job.opset}",
        Place(module=module or None, source=source),
        {"operators": [operator]},
        Remedy(_remedy(match["domain"], operator)),
    )


def _remedy(domain: str, operator: str) -> str:
    general = (
        "Write the model without the operator, or try another exporter or opset under export."
        " None of these was tried."
    )
    if domain in _OF_TORCH:
        return general
    return (
        f"Declare a translation of {operator}, custom_ops: [path/to/file.py:function], where the"
        " function returns a mapping from the operator to a function that writes it as ONNX."
    )
