"""What a worker imports whatever its request says: a fork server may import it ahead.

A stage reports the versions of everything its process imported. So only what a stage always
imports may be listed: with anything else, a forked worker would report more than a fresh one.
"""

import importlib
from collections.abc import Sequence

from convkit.worker.protocol import Envelope, JobKind

# Modules, or functions that import them as the stage does, each with what it costs: coremltools up
# to 8 s, torch 3 s, onnx_ir 0.5 s. What Core ML's other stages make of coremltools depends on what
# the model has imported before. onnxruntime is missing on purpose: it starts a thread on import,
# which rules out forking, and costs 0.1 s.
_TOOLS: dict[JobKind, tuple[str, ...]] = {
    "coreml-precision": ("torch",),
    "coreml-build": ("torch",),
    "coreml-verify": ("convkit.mil.library:load_library",),
    "export": ("torch",),
    "reference": ("torch",),
    "precision": ("onnx_ir",),
    "build": ("onnx_ir",),
    "verify": ("onnx_ir",),
}


def preloaded_tools(envelope: Envelope) -> tuple[str, ...]:
    """Return what every worker with this job imports sooner or later (see `preload`)."""
    tools = _TOOLS.get(envelope.stage, ())
    return () if envelope.stage in ("export", "reference") and _reads_onnx(envelope) else tools


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
