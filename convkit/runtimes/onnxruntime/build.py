"""The build stage of onnxruntime targets."""

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BuildRequest, BuildResult
from convkit.runtimes.onnxruntime import session
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.worker.job_context import Context
from convkit.worker.stages.graph_build import build_graph


def run(
    request: BuildRequest[OnnxRuntimeOptions], context: Context
) -> tuple[BuildResult, list[Finding]]:
    """Build the exported graph, in the target's precision, for onnxruntime."""
    return build_graph(request, session, context, session.open_to_read)
