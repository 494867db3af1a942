"""The job `bench` of TensorRT targets."""

from pathlib import Path

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BenchRequest, BenchResult
from convkit.runtimes.tensorrt.build import ENGINE_FILE
from convkit.runtimes.tensorrt.library import check_library
from convkit.runtimes.tensorrt.options import EngineOptions
from convkit.worker.bench.timed_target import bench_built
from convkit.worker.building.built_files import find_model
from convkit.worker.job_context import Context
from convkit.worker.runtime_interface.sessions import RuntimeSession


def run(
    request: BenchRequest[EngineOptions], context: Context
) -> tuple[BenchResult, list[Finding]]:
    """Time the engine, from arrays in the host's memory to arrays in the host's memory."""
    return bench_built(request, lambda: open_built(request), context), []


def open_built(request: BenchRequest[EngineOptions]) -> RuntimeSession:
    """Return the loaded engine."""
    check_library()
    from convkit.runtimes.tensorrt.session import EngineSession

    return EngineSession(find_model(Path(request.built), ENGINE_FILE), request.options)
