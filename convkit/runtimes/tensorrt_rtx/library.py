"""Loads TensorRT-RTX, and tells whether it can run on this machine's GPU."""

import re
from collections.abc import Sequence
from types import ModuleType

from convkit.runtimes.tensorrt.library import ELSEWHERE, rtx_library
from convkit.runtimes.tensorrt.timing import first_gpu
from convkit.worker.job_context import StageSkippedError

# Members of ComputeCapability that name no GPU.
_NO_GPU = ("NONE", "CURRENT")
# What the library says of an engine that this GPU cannot run, such as "has compute capability 9.0.
# Supported compute capabilities: 8.0 8.6 >12.0. TensorRT-RTX ...".
_WRONG_GPU = re.compile(
    r"has compute capability (?P<has>\d+\.\d+)\."
    r" Supported compute capabilities: (?P<built>.+?)\.(?:\s|$)"
)


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


def unsupported_gpu(library: ModuleType, built_for: Sequence[str] = ()) -> str | None:
    """Return why engines, or one that is built for these compute capabilities, cannot run on the
    first GPU; None if they can, as far as known before one is loaded.
    """
    gpu = first_gpu()
    if gpu is None:
        return "this machine has no GPU with a driver"
    supported = supported_capabilities(library)
    has = f"{gpu.name} has compute capability sm{gpu.capability}"
    if gpu.capability not in supported.values():
        return f"{has}, and TensorRT-RTX {library.__version__} builds for {', '.join(supported)}"
    if built_for and f"sm{gpu.capability}" not in built_for:
        return f"{has}, and the target's compute_capabilities are {', '.join(built_for)}"
    return None


def load_refusal(library: ModuleType, message: str | None) -> str:
    """Return why the library does not load an engine, in the recipe's words if it is the GPU."""
    release = f"TensorRT-RTX {library.__version__}"
    wrong = _WRONG_GPU.search(message or "")
    if wrong is None:
        return f"{release} does not load the engine: {message or 'it gave no reason'}"
    built = ", ".join(map(_capability, wrong["built"].split()))
    return (
        f"{release} does not run this engine on this GPU, whose compute capability is"
        f" {_capability(wrong['has'])}: the engine is for {built}"
    )


def _capability(number: str) -> str:
    """Return the library's `8.9` as recipes write it: sm89."""
    named = f"sm{number.lstrip('>').replace('.', '')}" if number[-1].isdigit() else "no other GPU"
    return f"later than {named}" if number.startswith(">") else named
