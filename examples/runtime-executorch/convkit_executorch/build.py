"""The build stage of ExecuTorch targets."""

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BuildRequest, BuildResult
from convkit.worker.job_context import Context
from convkit.worker.stages.module_build import build_module
from convkit_executorch import session
from convkit_executorch.options import ExecuTorchOptions


def run(
    request: BuildRequest[ExecuTorchOptions], context: Context
) -> tuple[BuildResult, list[Finding]]:
    """Convert the model and check the program."""
    return build_module(request, session, context)
