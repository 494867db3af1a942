"""The verify stage of Core AI targets: the file is executed on every case."""

import contextlib

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import VerifyRequest, VerifyResult
from convkit.runtimes.coreai import session
from convkit.runtimes.coreai.options import CoreAIOptions
from convkit.worker.job_context import Context
from convkit.worker.stages.module_verify import BuiltModule, verify_module


def run(
    request: VerifyRequest[CoreAIOptions], context: Context
) -> tuple[VerifyResult, list[Finding]]:
    """Verify a built file (see `verify_module`)."""
    return verify_module(request, session, context)


def subject(
    request: VerifyRequest[CoreAIOptions], held: contextlib.ExitStack
) -> BuiltModule[CoreAIOptions]:
    """Return the built file as a part of a joined run."""
    del held
    return BuiltModule(request, session)
