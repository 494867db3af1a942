"""torch.export and torch's ONNX exporter ("dynamo")."""

import warnings

import onnx_ir
import torch

from convkit.models.exporters.dynamic_trace import innermost, trace
from convkit.models.exporters.job import Job
from convkit.worker.context import StageFailedError


def export(job: Job) -> onnx_ir.Model:
    """Export with every axis symbolic.

    Raises UnexportableError with C106 for an axis that the model fixes, and with C113 for one that
    it restricts; StageFailedError for what torch.export cannot trace.
    """
    program = trace(job.module, job.probe.inputs, job.contract)
    names = [spec.name for spec in job.contract.inputs]
    outputs = [spec.name for spec in job.contract.outputs]
    try:
        with warnings.catch_warnings():
            # torch's own deprecations and remarks on axis names, which the contract overrules.
            warnings.simplefilter("ignore")
            exported = torch.onnx.export(
                program,
                dynamo=True,
                opset_version=job.opset,
                input_names=names,
                output_names=outputs,
                optimize=True,
                verbose=False,
            )
    except Exception as error:
        raise StageFailedError(
            f"export: torch {torch.__version__} could not turn the traced model into ONNX:"
            f" {innermost(error)}"
        ) from error
    assert exported is not None
    return exported.model
