"""A stand-in for device memory, which needs a GPU."""

import ctypes

import numpy as np


class HostMemory:
    """Device memory that lies on the host."""

    stream = 7

    def __init__(self) -> None:
        self.buffers: dict[int, np.ndarray] = {}

    def allocate(self, size: int) -> int:
        buffer = np.zeros(max(size, 1), np.uint8)
        self.buffers[buffer.ctypes.data] = buffer
        return int(buffer.ctypes.data)

    def upload(self, values: np.ndarray) -> int:
        address = self.allocate(values.nbytes)
        ctypes.memmove(address, values.ctypes.data, values.nbytes)
        return address

    def download(self, address: int, into: np.ndarray) -> None:
        ctypes.memmove(into.ctypes.data, address, into.nbytes)

    def wait(self) -> None: ...

    def release(self) -> None:
        self.buffers.clear()
