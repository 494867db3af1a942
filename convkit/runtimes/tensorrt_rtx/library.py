"""Loads TensorRT-RTX, and tells whether it can run on this machine's GPU."""

from types import ModuleType

from convkit.runtimes.tensorrt.library import ELSEWHERE, rtx_library
from convkit.runtimes.tensorrt.timing import first_gpu
from convkit.worker.job_context import StageSkippedError

# Members of ComputeCapability that name no GPU.
_NO_GPU = ("NONE", "CURRENT")


def check_library() -> ModuleType:
    """Return TensorRT-RTX's module; raises StageSkippedError if it is not usable."""
    library = rtx_library()
    if library is None:
        raise StageSkippedError(
            "TensorRT-RTX cannot be imported: this environment lacks tensorrt-rtx-cu12-libs and"
            f" tensorrt-rtx-cu12-bindings (or those of cu13); {ELSEWHERE}"
        )
    return library


def supported_capabilities(library: ModuleType) -> dict[str, int]:
    """Return the compute capabilities that a release builds for: {"sm89": 89}."""
    return {
        name.lower(): int(member)
        for name, member in library.ComputeCapability.__members__.items()
        if name not in _NO_GPU
    }


def unsupported_gpu(library: ModuleType) -> str | None:
    """Return why engines cannot run on the first GPU; None if they can, as far as known before one
    is loaded.
    """
    gpu = first_gpu()
    if gpu is None:
        return "this machine has no GPU with a driver"
    supported = supported_capabilities(library)
    if gpu.capability in supported.values():
        return None
    return (
        f"{gpu.name} has compute capability sm{gpu.capability}, and TensorRT-RTX"
        f" {library.__version__} builds for {', '.join(supported)}"
    )
