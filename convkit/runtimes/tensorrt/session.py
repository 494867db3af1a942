"""An engine, run by name: it lists its tensors in its own order, so positions are meaningless."""

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from convkit.protocol.contract import Contract, Dimension, TensorSpec
from convkit.protocol.messages import Fallback
from convkit.runtimes.tensorrt.engine import load_engine
from convkit.runtimes.tensorrt.library import DTYPES, MessageLog, make_logger
from convkit.runtimes.tensorrt.memory import DeviceMemory, open_memory
from convkit.runtimes.tensorrt.optimization_profiles import Profile, ShapeRange, serving_profile
from convkit.runtimes.tensorrt.options import EngineOptions
from convkit.worker.original.contract_check import UNKNOWN_DIMENSION
from convkit.worker.runtime_interface.sessions import (
    ModelRefusedError,
    NotServedError,
    RunFailedError,
)

if TYPE_CHECKING:
    import tensorrt as trt

import dataclasses

# Element types of contracts that numpy has none for.
_NOT_IN_NUMPY = ("INT4", "FP8", "BF16")


class LoadedEngine:
    """One loaded engine of a TensorRT library, whose module is `api`, and a context to run it."""

    def __init__(
        self,
        api: ModuleType,
        engine: "trt.ICudaEngine",
        context: "trt.IExecutionContext | None",
        messages: MessageLog,
    ) -> None:
        self._api, self._messages = api, messages
        self._engine = engine
        if context is None:
            raise ModelRefusedError(
                f"TensorRT creates no context for the engine: {self._messages.last_error()}"
            )
        self._context = context
        self._names = [
            self._engine.get_tensor_name(number) for number in range(self._engine.num_io_tensors)
        ]
        self._profiles = [
            self._profile(number) for number in range(self._engine.num_optimization_profiles)
        ]

    @property
    def providers(self) -> tuple[str, ...]:
        """TensorRT alone: an engine cannot fall back."""
        return ("TensorRT",)

    def fallbacks(self) -> tuple[Fallback, ...]:
        """Return an empty tuple: all of an engine runs on its device."""
        return ()

    def metadata(self) -> Mapping[str, str]:
        """Return an empty mapping: an engine has no metadata; its contract is stored beside it."""
        return {}

    def contract(self) -> Contract:
        """Return names, types and shapes in the engine's own order; raises ModelRefusedError for
        unknown types.
        """
        return Contract(self._specs(takes=True), self._specs(takes=False), ())

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return every output by name; raises RunFailedError, or NotServedError if no profile
        covers the shapes.
        """
        with _released(open_memory()) as memory:
            self._choose_profile({name: values.shape for name, values in feeds.items()}, memory)
            kept = [self._bind_input(name, values, memory) for name, values in feeds.items()]
            if missing := list(self._context.infer_shapes()):
                raise RunFailedError(f"TensorRT lacks the shape or value of {', '.join(missing)}")
            results = {
                spec.name: self._bind_output(spec, memory) for spec in self._specs(takes=False)
            }
            if not self._context.execute_async_v3(memory.stream):
                raise RunFailedError(f"TensorRT: {self._messages.last_error() or 'the run failed'}")
            memory.wait()
            outputs = {name: _fetch(result, memory) for name, result in results.items()}
            memory.wait()
            del kept
        return outputs

    def _specs(self, *, takes: bool) -> tuple[TensorSpec, ...]:
        if TYPE_CHECKING:
            import tensorrt as trt
        else:
            trt = self._api
        modes = trt.TensorIOMode
        wanted = modes.INPUT if takes else modes.OUTPUT
        return tuple(
            self._spec(name) for name in self._names if self._engine.get_tensor_mode(name) == wanted
        )

    def _spec(self, name: str) -> TensorSpec:
        kind = self._engine.get_tensor_dtype(name).name
        if kind not in DTYPES or kind in _NOT_IN_NUMPY:
            raise ModelRefusedError(
                f"{name!r} is {kind}, which numpy has no type for; end the graph with a Cast"
            )
        sizes = self._engine.get_tensor_shape(name)
        shape: list[Dimension] = [size if size >= 0 else UNKNOWN_DIMENSION for size in sizes]
        return TensorSpec(name, DTYPES[kind], tuple(shape))

    def _profile(self, number: int) -> Profile:
        ranges = {}
        for spec in self._specs(takes=True):
            least, typical, most = self._engine.get_tensor_profile_shape(spec.name, number)
            ranges[spec.name] = ShapeRange(tuple(least), tuple(typical), tuple(most))
        return ranges

    def _choose_profile(self, shapes: Mapping[str, tuple[int, ...]], memory: DeviceMemory) -> None:
        number = serving_profile(self._profiles, shapes)
        if number is None:
            asked = ", ".join(f"{name}={list(shape)}" for name, shape in shapes.items())
            accepted = " or ".join(
                ", ".join(f"{name}: {span}" for name, span in p.items()) for p in self._profiles
            )
            raise NotServedError(f"no profile of the engine serves {asked}; it accepts {accepted}")
        if number != self._context.active_optimization_profile:
            self._context.set_optimization_profile_async(number, memory.stream)

    def _bind_input(self, name: str, values: np.ndarray, memory: DeviceMemory) -> np.ndarray:
        """Bind one input; return the array that must outlive the run."""
        held = np.ascontiguousarray(values)
        if not self._context.set_input_shape(name, held.shape):
            raise RunFailedError(
                f"TensorRT refuses the shape {list(held.shape)} of {name!r}:"
                f" {self._messages.last_error()}"
            )
        on_host = self._engine.is_shape_inference_io(name)
        address = int(held.ctypes.data) if on_host else memory.upload(held)
        if not self._context.set_tensor_address(name, address):
            raise RunFailedError(
                f"TensorRT refuses the address of {name!r}: {self._messages.last_error()}"
            )
        return held

    def _bind_output(self, spec: TensorSpec, memory: DeviceMemory) -> "Growing | _Fixed":
        shape = tuple(self._context.get_tensor_shape(spec.name))
        dtype = np.dtype(spec.dtype)
        if any(size < 0 for size in shape):  # only known once the run has computed it
            growing, allocator = make_growing(self._api, dtype, memory)
            if not self._context.set_output_allocator(spec.name, allocator):
                raise RunFailedError(f"TensorRT does not accept an allocator for {spec.name!r}")
            return growing
        array = np.empty(shape, dtype)
        address = memory.allocate(array.nbytes)
        if not self._context.set_tensor_address(spec.name, address):
            raise RunFailedError(
                f"TensorRT refuses the address of {spec.name!r}: {self._messages.last_error()}"
            )
        return _Fixed(address, array)


class EngineSession(LoadedEngine):
    """An engine's file, loaded. `weights` is the ONNX file with a stripped engine's weights."""

    def __init__(self, file: Path, options: EngineOptions, weights: Path | None = None) -> None:
        import tensorrt as trt

        messages = MessageLog()
        engine = load_engine(file.read_bytes(), options, messages)
        if options.weights == "strip":
            _refit(engine, weights or file.with_name("model.onnx"), messages)
        super().__init__(trt, engine, engine.create_execution_context(), messages)


class _Fixed:
    """An output whose size is known before the run."""

    def __init__(self, address: int, array: np.ndarray) -> None:
        self.address = address
        self.array = array


def _fetch(result: "Growing | _Fixed", memory: DeviceMemory) -> np.ndarray:
    """Enqueue the copy of a result to the host; it is valid once `memory` was awaited."""
    array = result.array if isinstance(result, _Fixed) else np.empty(result.shape, result.dtype)
    if array.nbytes:
        memory.download(result.address, array)
    return array


def _refit(engine: "trt.ICudaEngine", weights: Path, messages: MessageLog) -> None:
    """Give a stripped engine the weights of the graph it was built from."""
    import tensorrt as trt

    logger = make_logger(trt, messages)
    refitter = trt.Refitter(engine, logger)
    parser = trt.OnnxParserRefitter(refitter, logger)
    if not parser.refit_from_file(str(weights)) or not refitter.refit_cuda_engine():
        raise ModelRefusedError(
            f"the stripped engine cannot load its weights from {weights.name}:"
            f" {messages.last_error()}"
        )


@contextlib.contextmanager
def _released(memory: DeviceMemory) -> Iterator[DeviceMemory]:
    try:
        yield memory
    finally:
        memory.release()


@dataclasses.dataclass
class Growing:
    """The state of one such output; `shape` is known after the run."""

    dtype: np.dtype
    address: int = 0
    size: int = 0
    shape: tuple[int, ...] = ()


def make_growing(
    api: ModuleType, dtype: np.dtype, memory: DeviceMemory
) -> tuple[Growing, "trt.IOutputAllocator"]:
    """Return an output that grows on demand, and the allocator through which TensorRT requests its
    memory.
    """
    if TYPE_CHECKING:
        import tensorrt as trt
    else:
        trt = api
    growing = Growing(dtype)

    class Allocator(trt.IOutputAllocator):
        def __init__(self) -> None:
            # pybind11 requires calling the base's own constructor
            trt.IOutputAllocator.__init__(self)

        def reallocate_output_async(
            self,
            tensor_name: str,  # noqa: ARG002 - TensorRT's signature, here and below
            memory_: int,  # noqa: ARG002
            size: int,
            alignment: int,  # noqa: ARG002
            stream: int,  # noqa: ARG002
        ) -> int:
            if size > growing.size:
                growing.address, growing.size = memory.allocate(size), size
            return growing.address

        def notify_shape(self, tensor_name: str, shape: "trt.Dims") -> None:  # noqa: ARG002
            growing.shape = tuple(shape)

    return growing, Allocator()
