"""A TensorRT-RTX engine, run by name on this machine's GPU.

Its kernels are compiled for that GPU when they first run. The runtime cache of a session keeps
them, so that one session compiles each only once.
"""

from pathlib import Path

from convkit.runtimes.tensorrt.library import MessageLog, make_logger
from convkit.runtimes.tensorrt.session import LoadedEngine
from convkit.runtimes.tensorrt_rtx.library import check_library, load_refusal
from convkit.worker.runtime_interface.sessions import ModelRefusedError


class RtxSession(LoadedEngine):
    """An engine's file, loaded. Raises StageSkippedError without the library, ModelRefusedError if
    it does not load the engine.
    """

    def __init__(self, file: Path) -> None:
        library = check_library()
        messages = MessageLog()
        self._runtime = library.Runtime(make_logger(library, messages))
        engine = self._runtime.deserialize_cuda_engine(file.read_bytes())
        if engine is None:
            raise ModelRefusedError(load_refusal(library, messages.last_error()))
        settings = engine.create_runtime_config()
        self._cache = settings.create_runtime_cache()
        settings.set_runtime_cache(self._cache)
        self._settings = settings  # must outlive the context
        super().__init__(library, engine, engine.create_execution_context(settings), messages)

    @property
    def providers(self) -> tuple[str, ...]:
        """TensorRT-RTX alone: an engine cannot fall back."""
        return ("TensorRT-RTX",)
