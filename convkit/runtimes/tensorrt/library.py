"""Loads TensorRT, and records its messages."""

from types import ModuleType
from typing import TYPE_CHECKING, cast

from convkit.protocol.contract import DType
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


# TensorRT's names for the element types that contracts have.
DTYPES: dict[str, DType] = {
    "BOOL": "bool",
    "INT4": "int4",
    "INT8": "int8",
    "UINT8": "uint8",
    "INT32": "int32",
    "INT64": "int64",
    "FP8": "float8e4m3fn",
    "HALF": "float16",
    "BF16": "bfloat16",
    "FLOAT": "float32",
}


# The first logger of a process belongs to the library's global registry, which reports to it until
# the process ends, and crashes it if the logger is gone.
_LOGGERS: list["trt.ILogger"] = []


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


def rtx_library() -> ModuleType | None:
    """Return the module of TensorRT-RTX, whose parser and builder need no GPU and no driver; None
    if it is not installed or does not load here.
    """
    try:
        import tensorrt_rtx_bindings
    except ImportError:  # the package, or a library that it loads
        return None
    return cast("ModuleType", tensorrt_rtx_bindings)


def make_logger(api: ModuleType, messages: MessageLog) -> "trt.ILogger":
    """Return a logger of a TensorRT library (`api` is its module) that records errors and warnings
    in `messages` and prints nothing.
    """
    if TYPE_CHECKING:
        import tensorrt as trt
    else:
        trt = api
    levels = trt.ILogger.Severity

    class Keeping(trt.ILogger):
        def __init__(self) -> None:
            trt.ILogger.__init__(self)  # pybind11 requires calling the base's own constructor

        def log(self, severity: "trt.ILogger.Severity", msg: str) -> None:
            if severity in (levels.INTERNAL_ERROR, levels.ERROR):
                messages.errors.append(msg)
            elif severity == levels.WARNING:
                messages.warnings.append(msg)

    logger = Keeping()
    _LOGGERS.append(logger)
    return logger


def installed_release() -> str | None:
    """Return the installed release, or None. Imports nothing."""
    for name in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


TENSORRT_11: bool = (installed_release() or "10").partition(".")[0] == "11"
