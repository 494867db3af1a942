"""Compares two built artifacts: ONNX models by graph and weights, other files by content."""

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import CompareRequest, CompareResult
from convkit.worker.comparison.folders import Reader, compare_artifacts
from convkit.worker.comparison.onnx_file import weight_files
from convkit.worker.comparison.onnx_model import compare_onnx
from convkit.worker.job_context import Context

_ONNX = Reader(".onnx", is_folder=False, compare=compare_onnx, weight_files=weight_files)


def run(request: CompareRequest, context: Context) -> tuple[CompareResult, list[Finding]]:
    """Return the similarity of two artifacts, file by file; raises StageFailedError if one is
    missing.
    """
    return compare_artifacts(request, _ONNX, context.progress), []
