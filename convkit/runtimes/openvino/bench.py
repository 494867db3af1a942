"""The job `bench` of OpenVINO targets."""

from pathlib import Path

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BenchRequest, BenchResult, Profile
from convkit.runtimes.openvino import session
from convkit.runtimes.openvino.ir import read_graph
from convkit.runtimes.openvino.options import OpenVINOOptions
from convkit.worker.bench.runtime_profiles import CALLS, Kernel, profile_of
from convkit.worker.bench.timed_target import Inputs, bench_graph, open_graph
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.sessions import RuntimeSession


def run(
    request: BenchRequest[OpenVINOOptions], context: Context
) -> tuple[BenchResult, list[Finding]]:
    """Time the built IR under OpenVINO, and profile its nodes in a second session."""
    return bench_graph(request, context, session, _profile)


def open_built(request: BenchRequest[OpenVINOOptions]) -> RuntimeSession:
    """Return the built model, to be timed as a part of another."""
    return open_graph(request, session)


def _profile(model: Path, request: BenchRequest[OpenVINOOptions], inputs: Inputs) -> Profile:
    size, feeds = inputs.first
    opened = session.OpenVINOSession(read_graph(model), request.options, profiled=True)
    opened.run(feeds)
    kernels = []
    for _ in range(CALLS):
        opened.run(feeds)
        # Nodes that were folded or fused into others have no time of their own.
        kernels += [
            Kernel(node.node_name, node.node_type, "CPU", node.real_time.total_seconds())
            for node in opened.executed()
            if node.real_time.total_seconds() > 0
        ]
    return profile_of(size, kernels, inputs.modules)
