"""The verify stage of ExecuTorch targets."""

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import VerifyRequest, VerifyResult
from convkit.worker.job_context import Context
from convkit.worker.stages.module_verify import verify_module
from convkit_executorch import session
from convkit_executorch.options import ExecuTorchOptions


def run(
    request: VerifyRequest[ExecuTorchOptions], context: Context
) -> tuple[VerifyResult, list[Finding]]:
    """Run the program on every case."""
    return verify_module(request, session, context)
