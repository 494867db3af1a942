"""Modules a worker imports regardless of its request, so that a fork server may import them ahead.

A stage reports the version of everything its process imported. List only modules that the stage
always imports; otherwise a forked worker would report more than a fresh one.
"""

import importlib
from collections.abc import Sequence

from convkit.runtimes.registry import load_runtime
from convkit.worker.protocol import Envelope, JobKind

# Modules, or functions that import them as the stage does (torch costs 3 s). The jobs of a target
# list theirs in the runtime's row. onnxruntime is excluded on purpose: it starts a thread on
# import, which rules out forking, and costs only 0.1 s.
_TOOLS: dict[JobKind, tuple[str, ...]] = {
    "export": ("torch",),
    "reference": ("torch",),
    "bench-original": ("torch",),
}


def preloaded_tools(envelope: Envelope) -> tuple[str, ...]:
    """Return what every worker with this job eventually imports (see `preload`)."""
    if envelope.runtime is not None:
        return tuple(load_runtime(envelope.runtime).preload.get(envelope.job, ()))
    tools = _TOOLS.get(envelope.job, ())
    return () if tools and _reads_onnx(envelope) else tools


def _reads_onnx(envelope: Envelope) -> bool:
    """Return True if the model is an ONNX file, which does not need torch."""
    source = envelope.request.get("source") if isinstance(envelope.request, dict) else None
    return not isinstance(source, dict) or source.get("kind") == "onnx"


def preload(tools: Sequence[str]) -> None:
    """Import modules (`name`), call functions (`module:name`), and import the worker's own code;
    propagates any exception that an import raises.
    """
    for tool in tools:
        name, _, function = tool.partition(":")
        module = importlib.import_module(name)
        if function:
            getattr(module, function)()
    importlib.import_module("convkit.worker.process")
