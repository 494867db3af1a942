"""What a worker imports whatever its request says: a fork server may import it ahead.

A stage reports the versions of everything its process imported. So only what a stage always
imports may be listed: with anything else, a forked worker would report more than a fresh one.
"""

import importlib
from collections.abc import Sequence

from convkit.runtimes.registry import load_runtime
from convkit.worker.protocol import Envelope, JobKind

# Modules, or functions that import them as the stage does (torch costs 3 s). The jobs of a target
# have theirs in its runtime's row. onnxruntime is missing on purpose: it starts a thread on import,
# which rules out forking, and costs 0.1 s.
_TOOLS: dict[JobKind, tuple[str, ...]] = {"export": ("torch",), "reference": ("torch",)}


def preloaded_tools(envelope: Envelope) -> tuple[str, ...]:
    """Return what every worker with this job imports sooner or later (see `preload`)."""
    if envelope.runtime is not None:
        return tuple(load_runtime(envelope.runtime).preload.get(envelope.job, ()))
    tools = _TOOLS.get(envelope.job, ())
    return () if tools and _reads_onnx(envelope) else tools


def _reads_onnx(envelope: Envelope) -> bool:
    """Say whether the model is an ONNX file, which needs no torch."""
    source = envelope.request.get("source") if isinstance(envelope.request, dict) else None
    return not isinstance(source, dict) or source.get("kind") == "onnx"


def preload(tools: Sequence[str]) -> None:
    """Import modules (`name`), call functions (`module:name`), and import the worker's own code;
    raises whatever an import raises.
    """
    for tool in tools:
        name, _, function = tool.partition(":")
        module = importlib.import_module(name)
        if function:
            getattr(module, function)()
    importlib.import_module("convkit.worker.process")
