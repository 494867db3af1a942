"""The job `bench` of onnxruntime targets."""

import tempfile
from pathlib import Path

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BenchRequest, BenchResult, Profile
from convkit.runtimes.onnxruntime import session
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.runtimes.onnxruntime.profile import kernels_in_profile, read_profile
from convkit.worker.bench.runtime_profiles import CALLS, profile_of
from convkit.worker.bench.timed_target import Inputs, bench_graph, open_graph
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.sessions import RuntimeSession


def run(
    request: BenchRequest[OnnxRuntimeOptions], context: Context
) -> tuple[BenchResult, list[Finding]]:
    """Time the built graph under onnxruntime, and profile its nodes in a second session."""
    return bench_graph(request, context, session, _profile)


def open_built(request: BenchRequest[OnnxRuntimeOptions]) -> RuntimeSession:
    """Return the built model, to be timed as a part of another."""
    return open_graph(request, session)


def _profile(model: Path, request: BenchRequest[OnnxRuntimeOptions], inputs: Inputs) -> Profile:
    size, feeds = inputs.first
    with tempfile.TemporaryDirectory(prefix="convkit-profile-") as folder:
        opened = session.open_profiled(
            model, request.device, request.options, Path(folder) / "profile"
        )
        for _ in range(CALLS + 1):
            opened.run(feeds)
        events = read_profile(Path(opened.raw.end_profiling()))
    kernels = list(kernels_in_profile(events))
    # The first call allocates; every call runs the same number of kernels.
    warm = kernels[len(kernels) // (CALLS + 1) :]
    wanted = session.wanted_providers(request.device, request.options)[0][0]
    return profile_of(size, warm, inputs.modules, wanted=wanted)
