"""torch.export and torch's ONNX exporter ("dynamo")."""

import warnings

import onnx_ir
import torch

from convkit.models.exporters.dynamic_trace import innermost, trace
from convkit.models.exporters.job import Job
from convkit.models.exporters.known_types import reading_known_types
from convkit.models.exporters.local_decompositions import decomposing_locally
from convkit.models.exporters.rule_matching import operators_first
from convkit.models.exporters.small_constants import optimize_keeping_constants
from convkit.models.exporters.translation_signatures import without_parsing
from convkit.models.graph.guarded_attention import guard_attention
from convkit.worker.context import StageFailedError


def export(job: Job) -> onnx_ir.Model:
    """Export with every axis symbolic.

    Raises UnexportableError with C106 for an axis that the model fixes, with C113 for one that it
    restricts, and with E305 for a decision about data; StageFailedError if torch.export cannot
    trace it.
    """
    program = trace(job.module, job.probe.inputs, job.contract, job.loaded.source_root)
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
            exported = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=job.opset,
                input_names=names,
                output_names=outputs,
                custom_translation_table=dict(job.translations) or None,
                optimize=False,
                verbose=False,
            )
            assert exported is not None
            guard_attention(exported.model)
            optimize_keeping_constants(exported.model, lambda: _optimized(exported))
            # The optimizer renames an input that is an output too.
            for value, name in zip(exported.model.graph.inputs, names, strict=True):
                value.name = name
    except Exception as error:
        raise StageFailedError(
            f"export: torch {torch.__version__} could not turn the traced model into ONNX:"
            f" {innermost(error)}"
        ) from error
    return exported.model


def _optimized(exported: torch.onnx.ONNXProgram) -> onnx_ir.Model:
    with operators_first():
        exported.optimize()
    return exported.model
