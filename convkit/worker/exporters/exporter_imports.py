"""Imports what torch's exporter needs, before any code of the user's runs.

torch imports most of it when a model is first exported, which takes as long as importing torch
itself. A process that lives on between runs has done it ahead. Every other export begins with it,
so that both have imported the same, in the same order.
"""

import contextlib
import importlib

# Private to torch and onnxscript. Where a release has others, the export imports them later.
_MODULES = (
    "torch.export._trace",
    "torch.onnx._internal.exporter._compat",
    "torch.onnx._internal.exporter._core",
    "torch.onnx._internal.exporter._registration",
    "torch.onnx._internal.exporter._torchlib.ops",
    "onnxscript.function_libs.torch_lib.ops",
)


def import_exporter() -> None:
    """Import what an export with torch's exporter imports, whatever the model is."""
    importlib.import_module("convkit.worker.exporters.exporter_registry")
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
