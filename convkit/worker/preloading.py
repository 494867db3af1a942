"""What a worker imports whatever its request says: a fork server may import it ahead.

A stage reports the versions of everything its process imported. So only what a stage always
imports may be listed: with anything else, a forked worker would report more than a fresh one.
"""

import importlib
from collections.abc import Sequence

from convkit.worker.protocol import Envelope, JobKind

# Sorted by what they cost on import, most expensive first: coremltools 8 s (it imports torch,
# transformers and scikit-learn), torch 3 s, onnx_ir 0.5 s. onnxruntime is missing on purpose: it
# starts a thread on import (which rules out forking) and costs 0.1 s.
_TOOLS: dict[JobKind, tuple[str, ...]] = {
    "coreml-precision": ("coremltools",),
    "coreml-build": ("coremltools",),
    "coreml-verify": ("coremltools",),
    "export": ("torch",),
    "reference": ("torch",),
    "precision": ("onnx_ir",),
    "build": ("onnx_ir",),
    "verify": ("onnx_ir",),
}


def preloaded_tools(envelope: Envelope) -> tuple[str, ...]:
    """Return the modules that every worker with this job imports sooner or later."""
    tools = _TOOLS.get(envelope.stage, ())
    return () if "torch" in tools and _reads_onnx(envelope) else tools


def _reads_onnx(envelope: Envelope) -> bool:
    """Say whether the model is an ONNX file, which needs no torch."""
    source = envelope.request.get("source") if isinstance(envelope.request, dict) else None
    return not isinstance(source, dict) or source.get("kind") == "onnx"


def preload(modules: Sequence[str]) -> None:
    """Import these modules and the worker's own code; raises whatever an import raises."""
    for name in modules:
        importlib.import_module(name)
    importlib.import_module("convkit.worker.process")
