"""Compares two built artifacts: Core ML packages by program and weights, other files by content."""

from convkit.comparison.folders import Reader, compare_artifacts
from convkit.findings.model import Finding
from convkit.runtimes.coreml.package_comparison import compare_packages
from convkit.worker.context import Context
from convkit.worker.protocol import CompareRequest, CompareResult

_PACKAGES = Reader(".mlpackage", is_folder=True, compare=compare_packages)


def run(request: CompareRequest, context: Context) -> tuple[CompareResult, list[Finding]]:
    """Return the similarity of two artifacts, file by file; raises StageFailedError if one is
    missing.
    """
    return compare_artifacts(request, _PACKAGES, context.progress), []
