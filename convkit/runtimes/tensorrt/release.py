"""Detects the installed TensorRT. Code for the two major releases branches on `TENSORRT_11` and on
nothing else.

A test type-checks this package against the interfaces of both, each with its own branch taken.
"""

import importlib.metadata

# The wheels' names; NVIDIA's containers install the first one.
_DISTRIBUTIONS = (
    "tensorrt",
    "tensorrt-cu13",
    "tensorrt-cu12",
    "tensorrt-cu13-bindings",
    "tensorrt-cu12-bindings",
)


def installed_release() -> str | None:
    """Return the installed release, or None. Imports nothing."""
    for name in _DISTRIBUTIONS:
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


TENSORRT_11: bool = (installed_release() or "10").partition(".")[0] == "11"
