"""The runtimes, by their name in recipes: convkit's own, and those added by other packages.

A package adds a runtime through the entry-point group `convkit.runtimes`: the entry's name is the
runtime's, its value is the package whose `RUNTIME` is the row.
"""

import functools
import importlib
import importlib.metadata
from collections.abc import Mapping
from pathlib import Path

from convkit.protocol.runtimes.runtime_row import Runtime

ENTRY_POINTS = "convkit.runtimes"

# To add a runtime, add a row here, and a folder.
BUILT_IN: dict[str, str] = {
    "onnxruntime": "convkit.runtimes.onnxruntime",
    "tensorrt": "convkit.runtimes.tensorrt",
    "tensorrt-rtx": "convkit.runtimes.tensorrt_rtx",
    "coreml": "convkit.runtimes.coreml",
    "openvino": "convkit.runtimes.openvino",
    "coreai": "convkit.runtimes.coreai",
    "given": "convkit.runtimes.given",
}


class BrokenRuntimeError(Exception):
    """A package that adds a runtime cannot be imported, or has no row; the message names it."""


def load_runtime(package: str) -> Runtime:
    """Return the row of a runtime's package; raises BrokenRuntimeError."""
    try:
        row = importlib.import_module(package).RUNTIME
    except (ImportError, AttributeError) as error:
        raise BrokenRuntimeError(f"{package} adds no runtime to convkit: {error}") from error
    if not isinstance(row, Runtime):
        raise BrokenRuntimeError(f"{package}.RUNTIME is a {type(row).__name__}, not a Runtime")
    return row


@functools.cache
def runtimes() -> Mapping[str, Runtime]:
    """Return every runtime by name, convkit's own first; raises BrokenRuntimeError."""
    packages = dict(BUILT_IN)
    for entry in importlib.metadata.entry_points(group=ENTRY_POINTS):
        if entry.name in packages and packages[entry.name] != entry.value:
            raise BrokenRuntimeError(
                f"{entry.value} adds the runtime {entry.name!r}, which {packages[entry.name]} "
                "has already; rename the entry point"
            )
        packages[entry.name] = entry.value
    return {name: load_runtime(package) for name, package in packages.items()}


def package_folder(runtime: Runtime) -> Path | None:
    """Return the folder of a runtime's top-level package; None for convkit's."""
    top = runtime.package.partition(".")[0]
    file = importlib.import_module(top).__file__
    return None if top == "convkit" or file is None else Path(file).parent
