"""Imports what torch's exporter needs, before any code of the user's runs, and makes what is the
same for every model.

torch imports most of it when a model is first exported, which takes as long as importing torch
itself. A process that lives on between runs has done it ahead. Every other export begins with the
imports, so that both have imported the same, in the same order.
"""

import contextlib
import functools
import importlib

from convkit.worker.exporters.onnxscript_speed import without_parsing

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


def import_and_prepare_exporter() -> None:
    """As `import_exporter`, and read what torch derives from its own operators in each process: the
    signatures of its 540 translations, and which operators are composed of others. That is a third
    of a small export; a process that exports nothing must not begin with it.
    """
    import_exporter()
    with contextlib.suppress(ImportError, AttributeError):
        from torch._export import utils
        from torch.onnx._internal.exporter import _registration, _schemas

        # torch keeps none; they are read again for each registry.
        _schemas.op_signature_from_function = functools.cache(_schemas.op_signature_from_function)
        with without_parsing():
            _registration.ONNXRegistry.from_torchlib()
        utils._collect_all_valid_cia_ops()  # noqa: SLF001 - torch keeps the result itself
