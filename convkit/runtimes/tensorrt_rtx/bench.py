"""The job `bench` of TensorRT-RTX targets."""

from pathlib import Path

from convkit.protocol.findings.finding import Finding
from convkit.protocol.messages import BenchRequest, BenchResult
from convkit.runtimes.tensorrt.build import ENGINE_FILE
from convkit.runtimes.tensorrt_rtx.library import check_library, unsupported_gpu
from convkit.runtimes.tensorrt_rtx.options import RtxOptions
from convkit.worker.bench.timed_target import bench_built
from convkit.worker.building.built_files import find_model
from convkit.worker.job_context import Context, StageSkippedError
from convkit.worker.runtime_interface.sessions import RuntimeSession


def run(request: BenchRequest[RtxOptions], context: Context) -> tuple[BenchResult, list[Finding]]:
    """Time the engine, from arrays in the host's memory to arrays in the host's memory."""
    return bench_built(request, lambda: open_built(request), context), []


def open_built(request: BenchRequest[RtxOptions]) -> RuntimeSession:
    """Return the loaded engine; raises StageSkippedError if this GPU cannot run it."""
    asked = request.options.compute_capabilities
    if (why := unsupported_gpu(check_library(), asked)) is not None:
        raise StageSkippedError(why)
    from convkit.runtimes.tensorrt_rtx.session import RtxSession

    return RtxSession(find_model(Path(request.built), ENGINE_FILE))
