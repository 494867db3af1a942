"""Compares two built artifacts: Core ML packages by their programs and weights, other files by
their bytes.
"""

from convkit.comparison.folders import Reader, compare_artifacts
from convkit.findings.model import Finding
from convkit.runtimes.coreml.package_comparison import compare_packages
from convkit.worker.context import Context
from convkit.worker.protocol import CompareRequest, CompareResult

_PACKAGES = Reader(".mlpackage", is_folder=True, compare=compare_packages)


def run(request: CompareRequest, context: Context) -> tuple[CompareResult, list[Finding]]:
    """Return how alike two artifacts are, file by file; raises StageFailedError where one is not
    there.
    """
    return compare_artifacts(request, _PACKAGES, context.progress), []
