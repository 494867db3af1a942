"""GPU memory, managed by cuda-python or, if that is not installed, by torch."""

import importlib.util
from typing import Any, Protocol

import numpy as np

from convkit.runtimes.tensorrt.library import ELSEWHERE
from convkit.worker.job_context import StageSkippedError
from convkit.worker.runtime_interface.sessions import RunFailedError


class DeviceMemory(Protocol):
    """The buffers of one run and its stream. Addresses are device pointers."""

    @property
    def stream(self) -> int:
        """The stream's handle."""
        ...

    def allocate(self, size: int) -> int:
        """Return the address of `size` bytes, allocated until `release`; raises RunFailedError."""
        ...

    def upload(self, values: np.ndarray) -> int:
        """Enqueue a copy of an array to the device; return its address there."""
        ...

    def download(self, address: int, into: np.ndarray) -> None:
        """Enqueue a copy from the device into a contiguous array."""
        ...

    def wait(self) -> None:
        """Wait until all enqueued work is done; raises RunFailedError."""
        ...

    def release(self) -> None:
        """Free the buffers."""
        ...


def open_memory() -> DeviceMemory:
    """Return device memory; raises StageSkippedError if neither library is installed."""
    if (
        importlib.util.find_spec("cuda") is not None
        and importlib.util.find_spec("cuda.bindings") is not None
    ):
        return CudaPythonMemory()
    if importlib.util.find_spec("torch") is not None:
        import torch

        if torch.cuda.is_available():
            return TorchMemory()
    raise StageSkippedError(f"neither cuda-python nor a torch with CUDA is installed; {ELSEWHERE}")


class CudaPythonMemory:
    """Memory managed by NVIDIA's own bindings of the CUDA runtime."""

    def __init__(self) -> None:
        from cuda.bindings import runtime

        self._runtime = runtime
        self._buffers: list[int] = []
        self._held: list[np.ndarray] = []
        self._stream = self._call(runtime.cudaStreamCreate())

    @property
    def stream(self) -> int:
        return int(self._stream)

    def allocate(self, size: int) -> int:
        address = int(self._call(self._runtime.cudaMalloc(max(size, 1))))
        self._buffers.append(address)
        return address

    def upload(self, values: np.ndarray) -> int:
        values = np.ascontiguousarray(values)
        self._held.append(values)  # the copy reads it later
        address = self.allocate(values.nbytes)
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyHostToDevice
        self._call(
            self._runtime.cudaMemcpyAsync(
                address, values.ctypes.data, values.nbytes, kind, self._stream
            )
        )
        return address

    def download(self, address: int, into: np.ndarray) -> None:
        kind = self._runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
        self._call(
            self._runtime.cudaMemcpyAsync(
                into.ctypes.data, address, into.nbytes, kind, self._stream
            )
        )

    def wait(self) -> None:
        self._call(self._runtime.cudaStreamSynchronize(self._stream))

    def release(self) -> None:
        for address in self._buffers:
            self._call(self._runtime.cudaFree(address))
        self._buffers.clear()
        self._held.clear()

    def _call(self, answer: tuple[Any, ...]) -> Any:  # noqa: ANN401 - the CUDA function's result
        error, *values = answer
        if error != self._runtime.cudaError_t.cudaSuccess:
            raise RunFailedError(f"CUDA: {error.name}")
        return values[0] if values else None


class TorchMemory:
    """Memory managed by torch: every buffer is a tensor of bytes."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        self._buffers: dict[int, torch.Tensor] = {}
        self._held: list[torch.Tensor] = []
        self._stream = torch.cuda.Stream()

    @property
    def stream(self) -> int:
        return int(self._stream.cuda_stream)

    def allocate(self, size: int) -> int:
        try:
            buffer = self._torch.empty(max(size, 1), dtype=self._torch.uint8, device="cuda")
        except RuntimeError as error:  # torch.cuda.OutOfMemoryError is one
            raise RunFailedError(f"CUDA: {error}") from error
        self._buffers[buffer.data_ptr()] = buffer
        return int(buffer.data_ptr())

    def upload(self, values: np.ndarray) -> int:
        raw = self._torch.from_numpy(
            np.frombuffer(np.ascontiguousarray(values).tobytes(), dtype=np.uint8).copy()
        )
        self._held.append(raw)
        address = self.allocate(raw.numel())
        with self._torch.cuda.stream(self._stream):
            self._buffers[address][: raw.numel()].copy_(raw, non_blocking=True)
        return address

    def download(self, address: int, into: np.ndarray) -> None:
        with self._torch.cuda.stream(self._stream):
            raw = self._buffers[address][: into.nbytes].cpu()
        into.reshape(-1).view(np.uint8)[:] = raw.numpy()

    def wait(self) -> None:
        self._stream.synchronize()

    def release(self) -> None:
        self._buffers.clear()
        self._held.clear()
