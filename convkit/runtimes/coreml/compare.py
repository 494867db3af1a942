"""Compares two built artifacts: Core ML packages by program and weights, other files by content."""

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import CompareRequest, CompareResult
from convkit.runtimes.coreml.package_comparison import compare_packages
from convkit.worker.comparison.folders import Reader, compare_artifacts
from convkit.worker.job_context import Context

_PACKAGES = Reader(".mlpackage", is_folder=True, compare=compare_packages)


def run(request: CompareRequest, context: Context) -> tuple[CompareResult, list[Finding]]:
    """Return the similarity of two artifacts, file by file; raises StageFailedError if one is
    missing.
    """
    return compare_artifacts(request, _PACKAGES, context.progress), []
