"""TensorRT's part of `convkit doctor`."""

import ctypes

from convkit.protocol.runtimes.runtime_row import MachineFact

_MAJORS = (11, 10)


def checks() -> tuple[MachineFact, ...]:
    """Return whether TensorRT's library is on the loader's path."""
    for major in _MAJORS:
        try:
            ctypes.CDLL(f"libnvinfer.so.{major}")
        except OSError:
            continue
        return (MachineFact("TensorRT", "ok", f"libnvinfer {major}"),)
    missing = "no libnvinfer on the loader's path"
    return (MachineFact("TensorRT", "note", missing, "only needed on a machine with a GPU"),)
