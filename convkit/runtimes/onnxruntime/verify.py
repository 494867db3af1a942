"""The verify stage of onnxruntime targets."""

import contextlib

from convkit.findings.model import Finding
from convkit.runtimes.onnxruntime import session
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.stages.graph_verify import BuiltGraph, graph_subject, verify_graph
from convkit.worker.context import Context
from convkit.worker.protocol import VerifyRequest, VerifyResult


def run(
    request: VerifyRequest[OnnxRuntimeOptions], context: Context
) -> tuple[VerifyResult, list[Finding]]:
    """Verify the built graph under onnxruntime."""
    return verify_graph(request, session, context)


def subject(
    request: VerifyRequest[OnnxRuntimeOptions], held: contextlib.ExitStack
) -> BuiltGraph[OnnxRuntimeOptions]:
    """Return the built graph as a part of a joined run."""
    del held
    return graph_subject(request, session)
