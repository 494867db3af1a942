"""The plugin libraries that a recipe declares as custom operators for TensorRT."""

from typing import cast

from convkit.runtimes.tensorrt.library import MessageLog
from convkit.worker.custom_ops import library_files, unusable

# A plugin cannot be registered twice, and the registry belongs to the process.
_LOADED: set[str] = set()


def load_plugins(messages: MessageLog) -> None:
    """Load this stage's plugin libraries into TensorRT's registry, once per process; `messages` are
    those of a logger in use. Raises StageFailedError with E322.
    """
    import tensorrt as trt

    registry: trt.IPluginRegistry = trt.get_plugin_registry()
    for file, library in library_files("tensorrt"):
        if str(file) in _LOADED:
            continue
        try:
            # The bindings declare no None, but give it for a null handle.
            handle = cast("object | None", registry.load_library(str(file)))
        except Exception as error:  # the bindings do not say which
            raise unusable(library.path, f"TensorRT cannot load it: {error}") from error
        if handle is None:
            why = (
                messages.last_error()
                or "it is not a plugin library, or its plugins are known already"
            )
            raise unusable(library.path, f"TensorRT cannot load it: {why}")
        _LOADED.add(str(file))
