"""TensorRT-RTX's part of `convkit doctor`."""

import importlib.metadata

from convkit.protocol.runtimes.runtime_row import MachineFact
from convkit.runtimes.tensorrt.timing import first_gpu

_LIBRARIES = ("tensorrt-rtx-cu12-libs", "tensorrt-rtx-cu13-libs")


def checks() -> tuple[MachineFact, ...]:
    """Return the release in convkit's own environment, and whether its engines can run here."""
    gpu = first_gpu()
    runs = f"engines run on {gpu.name}" if gpu is not None else "engines are built, not run"
    for name in _LIBRARIES:
        try:
            release = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
        return (MachineFact("TensorRT-RTX", "ok", f"{release}; {runs}"),)
    detail = f"not in this environment; {runs} by the environments of recipes"
    return (MachineFact("TensorRT-RTX", "note", detail),)
