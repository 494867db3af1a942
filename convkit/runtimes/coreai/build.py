"""The build stage of Core AI targets: the model itself becomes a file that depends only on its
content.
"""

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BuildRequest, BuildResult
from convkit.runtimes.coreai import session
from convkit.runtimes.coreai.options import CoreAIOptions
from convkit.worker.job_context import Context
from convkit.worker.stages.module_build import build_module


def run(
    request: BuildRequest[CoreAIOptions], context: Context
) -> tuple[BuildResult, list[Finding]]:
    """Convert the model and check the file (see `build_module`)."""
    return build_module(request, session, context)
