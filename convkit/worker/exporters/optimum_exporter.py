"""optimum's exporter, for the architectures it has configurations for."""

import warnings

import onnx_ir

from convkit.worker.exporters.export_job import ExportJob
from convkit.worker.graph.graph_contract import load_graph
from convkit.worker.job_context import StageFailedError
from convkit.worker.original.loading.transformers_tasks import DEFAULT_TASK


def export(job: ExportJob) -> onnx_ir.Model:
    """Export with optimum, which chooses names and order by its own configuration of the
    architecture.

    Raises StageFailedError if optimum is missing, does not support the architecture or task, or
    fails.
    """
    try:
        from optimum.exporters.onnx import onnx_export_from_model
    except ImportError as error:
        raise StageFailedError(
            f"export.exporter: optimum does not import ({error}); pin optimum-onnx and a"
            " transformers release that it supports under tools, or use the exporter torch"
        ) from error
    try:
        with warnings.catch_warnings():
            # Deprecation and tracer warnings of optimum, transformers and torch about each other.
            warnings.simplefilter("ignore")
            onnx_export_from_model(
                model=job.loaded.module,
                output=job.scratch,
                opset=job.opset,
                task=job.task or DEFAULT_TASK,
                do_validation=False,
                no_post_process=True,
                device="cpu",
            )
    except Exception as error:
        raise StageFailedError(
            f"export: optimum could not export {job.loaded.description} for"
            f" {job.task or DEFAULT_TASK}: {type(error).__name__}: {error}"
        ) from error
    files = sorted(file.name for file in job.scratch.glob("*.onnx"))
    if files != ["model.onnx"]:
        raise StageFailedError(
            f"export: optimum splits this model into {', '.join(files) or 'no files'}; a"
            " recipe's model, or a part's, is one graph. Write the files with"
            " `optimum-cli export onnx`, and a recipe with `parts`: each file is the model.onnx of"
            " a part, and this model is the recipe's original (docs/parts.md)"
        )
    return load_graph(job.scratch / "model.onnx")
