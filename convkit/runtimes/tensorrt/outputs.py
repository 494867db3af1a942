"""Outputs whose size is determined during the run: TensorRT requests their memory while it runs."""

import dataclasses
from typing import TYPE_CHECKING

import numpy as np

from convkit.runtimes.tensorrt.memory import DeviceMemory

if TYPE_CHECKING:
    import tensorrt as trt


@dataclasses.dataclass
class Growing:
    """The state of one such output; `shape` is known after the run."""

    dtype: np.dtype
    address: int = 0
    size: int = 0
    shape: tuple[int, ...] = ()


def make_growing(dtype: np.dtype, memory: DeviceMemory) -> tuple[Growing, "trt.IOutputAllocator"]:
    """Return an output that grows on demand, and the allocator through which TensorRT requests its
    memory.
    """
    import tensorrt as trt

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
