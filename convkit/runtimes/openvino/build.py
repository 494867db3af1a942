"""The build stage of OpenVINO targets."""

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BuildRequest, BuildResult
from convkit.runtimes.openvino import session
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.worker.job_context import Context
from convkit.worker.stages.graph_build import build_graph


def run(
    request: BuildRequest[OpenVINOOptions], context: Context
) -> tuple[BuildResult, list[Finding]]:
    """Build the exported graph, in the target's precision, for OpenVINO."""
    return build_graph(request, session, context)
