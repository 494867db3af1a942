"""Modules a worker imports regardless of its request, so that a fork server may import them ahead.

A stage reports the version of everything its process imported. List only modules that the stage
always imports; otherwise a forked worker would report more than a fresh one.
"""

import importlib
from collections.abc import Sequence

from convkit.protocol.jobs.imported_versions import read_distributions
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import CustomOps, Envelope, JobKind
from convkit.protocol.runtimes.runtime_registry import load_runtime
from convkit.protocol.runtimes.runtime_row import Runtime

# The jobs that load the original model. The jobs of a target list what they import in the
# runtime's row. onnxruntime is excluded on purpose: it costs only 0.1 s.
_LOADING: tuple[JobKind, ...] = ("export", "reference", "bench-original")
# Factories and archives may do without transformers, which costs as much as torch.
_TORCH = ("torch",)
_TRANSFORMERS = ("torch", "transformers.modeling_utils")
# What workers import as well, of jobs that begin with torch. For exports, with torch's exporter, it
# takes as long as torch.
_FURTHER: dict[JobKind, tuple[str, ...]] = {
    "export": (
        "convkit.worker.stages.export",
        "convkit.worker.exporters.exporter_imports:import_and_prepare_exporter",
    ),
    "reference": ("convkit.worker.stages.reference",),
}
_TORCH_EXPORTERS = ("torch", "auto")


def preloaded_tools(envelope: Envelope) -> tuple[str, ...]:
    """Return what every worker with this job eventually imports (see `preload`)."""
    if envelope.runtime is not None:
        return tuple(load_runtime(envelope.runtime).preload.get(envelope.job, ()))
    return _loaders(envelope) if envelope.job in _LOADING else ()


def further_tools(envelope: Envelope) -> tuple[str, ...]:
    """Return what a process may have imported that serves only workers like this one, in place of
    `preloaded_tools`; nothing if that is all they have in common.

    Other stages must not be forked from it, so it is worth its memory only if it outlives the run.
    """
    request = envelope.request if isinstance(envelope.request, dict) else {}
    if preloaded_tools(envelope) != _TORCH or envelope.job not in _FURTHER:
        return ()
    if envelope.job == "export" and request.get("exporter") not in _TORCH_EXPORTERS:
        return ()
    return _TORCH + _FURTHER[envelope.job]


def tools_of_job(job: JobKind, runtime: Runtime | None) -> frozenset[tuple[str, ...]]:
    """Return what `preloaded_tools` and `further_tools` may return for any request of a job;
    nothing if that is always empty.
    """
    if runtime is None:
        further = (_TORCH + _FURTHER[job],) if job in _FURTHER else ()
        return frozenset((_TORCH, _TRANSFORMERS, *further) if job in _LOADING else ())
    return frozenset((tuple(runtime.preload[job]),) if runtime.preload.get(job) else ())


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


# What loads the model of a source. Named and not imported: a worker's own modules know no models.
LOAD_MODEL = "convkit.worker.original.loading.source_registry:load_ahead"
# The jobs that begin with it. Their processes may share the memory of a model loaded once.
_SHARING: tuple[JobKind, ...] = ("export", "reference")
# Sources whose loading runs no code but convkit's and transformers': what other code leaves in a
# process would pass to several stages.
_SHAREABLE = ("config", "hub", "package", "path")


def shared_source(envelope: Envelope) -> Json:
    """Return the source of the model that a worker loads, if a loader may load it for several
    workers; otherwise None.
    """
    request = envelope.request if isinstance(envelope.request, dict) else {}
    source = request.get("source")
    if (
        envelope.job not in _SHARING
        or envelope.custom_ops != CustomOps()
        or not isinstance(source, dict)
        or source.get("kind") not in _SHAREABLE
        or source.get("allow_remote_code")
        or source.get("allow_pickle")
    ):
        return None
    return source


def preload(tools: Sequence[str]) -> None:
    """Import modules (`name`), call functions (`module:name`), import the worker's own code, and
    read which packages are installed; propagates any exception that an import raises.
    """
    for tool in tools:
        name, _, function = tool.partition(":")
        module = importlib.import_module(name)
        if function:
            getattr(module, function)()
    importlib.import_module("convkit.worker.process.stage_process")
    read_distributions()
