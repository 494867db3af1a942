"""Modules a worker imports regardless of its request, so that a fork server may import them ahead.

A stage reports the version of everything its process imported. List only modules that the stage
always imports; otherwise a forked worker would report more than a fresh one.
"""

import importlib
from collections.abc import Sequence

from convkit.runtimes.registry import load_runtime
from convkit.worker.imported_versions import read_distributions
from convkit.worker.protocol import Envelope, JobKind

# The jobs that load the original model. The jobs of a target list what they import in the
# runtime's row. onnxruntime is excluded on purpose: it starts a thread on import, which rules out
# forking, and costs only 0.1 s.
_LOADING: tuple[JobKind, ...] = ("export", "reference", "bench-original")
# Factories and archives may do without transformers, which costs as much as torch.
_TORCH = ("torch",)
_TRANSFORMERS = ("torch", "transformers.modeling_utils")


def preloaded_tools(envelope: Envelope) -> tuple[str, ...]:
    """Return what every worker with this job eventually imports (see `preload`)."""
    if envelope.runtime is not None:
        return tuple(load_runtime(envelope.runtime).preload.get(envelope.job, ()))
    return _loaders(envelope) if envelope.job in _LOADING else ()


def _loaders(envelope: Envelope) -> tuple[str, ...]:
    """Return what loading the original imports; an ONNX file needs no torch."""
    source = envelope.request.get("source") if isinstance(envelope.request, dict) else None
    match source.get("kind") if isinstance(source, dict) else "onnx":
        case "onnx":
            return ()
        case "factory" | "torchscript" | "exported":
            return _TORCH
        case _:
            return _TRANSFORMERS


def preload(tools: Sequence[str]) -> None:
    """Import modules (`name`), call functions (`module:name`), import the worker's own code, and
    read which packages are installed; propagates any exception that an import raises.
    """
    for tool in tools:
        name, _, function = tool.partition(":")
        module = importlib.import_module(name)
        if function:
            getattr(module, function)()
    importlib.import_module("convkit.worker.process")
    read_distributions()
