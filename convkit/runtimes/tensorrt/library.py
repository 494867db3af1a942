"""Loads TensorRT, and records its messages."""

from typing import TYPE_CHECKING

from convkit.worker.job_context import StageSkippedError

if TYPE_CHECKING:
    import tensorrt as trt

import importlib.metadata

ELSEWHERE = (
    "run it on a machine that has it: convkit run RECIPE --only TARGET, with --toolchain host in a"
    " container that has it"
)


# The wheels' names; NVIDIA's containers install the first one.
_DISTRIBUTIONS = (
    "tensorrt",
    "tensorrt-cu13",
    "tensorrt-cu12",
    "tensorrt-cu13-bindings",
    "tensorrt-cu12-bindings",
)


class MessageLog:
    """TensorRT's errors and warnings, in order."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.warnings: list[str] = []

    def last_error(self) -> str:
        """Return the last error on one line; empty if there was none."""
        return " ".join(self.errors[-1].split()) if self.errors else ""


def check_library() -> str:
    """Return TensorRT's release; raises StageSkippedError if it is not usable."""
    try:
        import tensorrt as trt
    except ImportError as error:  # the package, or libnvinfer, which it loads
        raise StageSkippedError(f"TensorRT cannot be imported ({error}); {ELSEWHERE}") from error
    return str(trt.__version__)


def make_logger(messages: MessageLog) -> "trt.ILogger":
    """Return a logger that records errors and warnings in `messages` and prints nothing."""
    import tensorrt as trt

    class Keeping(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)  # pybind11 requires calling the base's own constructor

        def log(self, severity: trt.ILogger.Severity, msg: str) -> None:
            if severity in (trt.ILogger.Severity.INTERNAL_ERROR, trt.ILogger.Severity.ERROR):
                messages.errors.append(msg)
            elif severity == trt.ILogger.Severity.WARNING:
                messages.warnings.append(msg)

    return Keeping()


def installed_release() -> str | None:
    """Return the installed release, or None. Imports nothing."""
    for name in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


TENSORRT_11: bool = (installed_release() or "10").partition(".")[0] == "11"
