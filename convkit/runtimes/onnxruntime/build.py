"""The build stage of onnxruntime targets."""

from convkit.findings.model import Finding
from convkit.runtimes.onnxruntime import session
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.stages.graph_build import build_graph
from convkit.worker.context import Context
from convkit.worker.protocol import BuildRequest, BuildResult


def run(
    request: BuildRequest[OnnxRuntimeOptions], context: Context
) -> tuple[BuildResult, list[Finding]]:
    """Build the exported graph, in the target's precision, for onnxruntime."""
    return build_graph(request, session, context, session.open_to_read)
