"""Element types of ML programs, and their values as torch tensors.

torch has few operations on unsigned integers wider than eight bits, and none on types below eight;
such values are held in the next wider signed type, and a program's arithmetic never notices: it is
done on int32 and floats only.
"""

import dataclasses
from typing import Any, TypeAlias

import numpy as np
import torch

from convkit.tensors import DType

# The element type's name in a program -> how its values are held.
STORAGE: dict[str, torch.dtype] = {
    "bool": torch.bool,
    "int4": torch.int8,
    "int8": torch.int8,
    "int16": torch.int16,
    "int32": torch.int32,
    "int64": torch.int64,
    "uint1": torch.uint8,
    "uint2": torch.uint8,
    "uint3": torch.uint8,
    "uint4": torch.uint8,
    "uint6": torch.uint8,
    "uint8": torch.uint8,
    "uint16": torch.int32,
    "uint32": torch.int64,
    "fp16": torch.float16,
    "fp32": torch.float32,
}

# The element type's name in a program -> its name in a contract. What has no entry cannot be an
# input or output.
CONTRACT_NAMES: dict[str, DType] = {
    "bool": "bool",
    "int8": "int8",
    "int16": "int16",
    "int32": "int32",
    "uint8": "uint8",
    "uint16": "uint16",
    "fp16": "float16",
    "fp32": "float32",
}


@dataclasses.dataclass(frozen=True)
class TensorList:
    """A program's list: equal shapes, one element type. What was never written reads as zeros.

    `shape` holds None for a size that the first element written decides.
    """

    elements: tuple[torch.Tensor | None, ...]
    shape: tuple[int | None, ...]
    dtype: torch.dtype
    grows: bool


# What an operation takes for one argument. Texts are modes; a tuple stands for a variable number of
# tensors.
Value: TypeAlias = torch.Tensor | TensorList | str


def type_name(kind: Any) -> str:  # noqa: ANN401 - coremltools' types are classes made at run time
    """Return the name of a variable's element type, such as `fp16`."""
    from coremltools.converters.mil.mil import types

    if types.is_state(kind):
        kind = kind.wrapped_type()
    return str(types.builtin_to_string(kind.get_primitive() if types.is_tensor(kind) else kind))


def as_tensor(array: np.ndarray | np.generic) -> torch.Tensor:
    """Return an array's values as a tensor, sharing memory wherever torch can."""
    array = np.asarray(array)
    if array.dtype in (np.uint16, np.uint32):
        array = array.astype(np.int32 if array.dtype == np.uint16 else np.int64)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch warns of the first, and refuses the second
    return torch.from_numpy(array)


def as_array(tensor: torch.Tensor, name: str) -> np.ndarray:
    """Return a tensor's values as an array of its own, in the element type that the
    program names.
    """
    array = tensor.detach().cpu().numpy()
    return np.array(array, dtype=CONTRACT_NAMES.get(name, str(array.dtype)), copy=True)


def widened(value: Value) -> Value:
    """Return a float16 tensor in float32, anything else as it is."""
    return (
        value.float() if isinstance(value, torch.Tensor) and value.dtype == torch.float16 else value
    )
