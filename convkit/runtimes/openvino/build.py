"""The build stage of OpenVINO targets."""

from convkit.findings.model import Finding
from convkit.runtimes.openvino import session
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.stages.graph_build import build_graph
from convkit.worker.context import Context
from convkit.worker.protocol import BuildRequest, BuildResult


def run(
    request: BuildRequest[OpenVINOOptions], context: Context
) -> tuple[BuildResult, list[Finding]]:
    """Build the exported graph, in the target's precision, for OpenVINO."""
    return build_graph(request, session, context)
