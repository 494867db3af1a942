"""The build stage of Core ML targets: the model itself becomes a package that depends only on its
content, checked against the contract.
"""

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BuildRequest, BuildResult
from convkit.runtimes.coreml import module_package
from convkit.runtimes.coreml.packages.options import ProgramOptions
from convkit.worker.job_context import Context
from convkit.worker.stages.module_build import build_module


def run(
    request: BuildRequest[ProgramOptions], context: Context
) -> tuple[BuildResult, list[Finding]]:
    """Convert the model, and check the package (see `build_module`)."""
    return build_module(request, module_package, context)
