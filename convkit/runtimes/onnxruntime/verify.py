"""The verify stage of onnxruntime targets."""

import contextlib
import dataclasses

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import VerifyRequest, VerifyResult
from convkit.runtimes.onnxruntime import session
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.worker.job_context import Context
from convkit.worker.stages.graph_verify import BuiltGraph, graph_subject, verify_graph


def run(
    request: VerifyRequest[OnnxRuntimeOptions], context: Context
) -> tuple[VerifyResult, list[Finding]]:
    """Verify the built graph under onnxruntime, and its package under the program it is for."""
    if request.options.shared_buffers:
        from convkit.runtimes.onnxruntime.shared_buffers import verify_shared

        result, findings = verify_shared(request, context)
    else:
        result, findings = verify_graph(request, session, context)
    if request.options.package == "genai":
        from convkit.runtimes.onnxruntime.genai_check import verify_package

        rows, found = verify_package(request, context)
        return dataclasses.replace(result, packaged=rows), [*findings, *found]
    return result, findings


def subject(
    request: VerifyRequest[OnnxRuntimeOptions], held: contextlib.ExitStack
) -> BuiltGraph[OnnxRuntimeOptions]:
    """Return the built graph as a part of a joined run."""
    del held
    return graph_subject(request, session)
