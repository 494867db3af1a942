"""Element types of ML programs, and their values as torch tensors.

torch supports few operations on unsigned integers wider than eight bits, and none on types narrower
than eight. Such values are stored in the next wider signed type. This does not affect a program's
arithmetic, which only uses int32 and floats.
"""

import dataclasses
from typing import Any, TypeAlias

import numpy as np
import torch

from convkit.protocol.contract import DType

# The element type's name in a program -> the torch type that stores its values.
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

# The element type's name in a program -> its name in a contract. Types without an entry cannot be
# inputs or outputs.
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
    """A program's list: elements of one shape and type. Unwritten elements read as zeros.

    `shape` contains None for sizes determined by the first element written.
    """

    elements: tuple[torch.Tensor | None, ...]
    shape: tuple[int | None, ...]
    dtype: torch.dtype
    grows: bool


# An operation's argument. Strings are modes; a tuple is a variable number of tensors.
Value: TypeAlias = torch.Tensor | TensorList | str


def type_name(kind: Any) -> str:  # noqa: ANN401 - coremltools' types are classes made at run time
    """Return the name of a variable's element type, such as `fp16`."""
    from coremltools.converters.mil.mil import types

    if types.is_state(kind):
        kind = kind.wrapped_type()
    return str(types.builtin_to_string(kind.get_primitive() if types.is_tensor(kind) else kind))


def as_tensor(array: np.ndarray | np.generic) -> torch.Tensor:
    """Return an array's values as a tensor, sharing memory if torch can."""
    array = np.asarray(array)
    if array.dtype in (np.uint16, np.uint32):
        array = array.astype(np.int32 if array.dtype == np.uint16 else np.int64)
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    if not array.flags.writeable or any(stride < 0 for stride in array.strides):
        array = array.copy()  # torch warns about the first, and rejects the second
    return torch.from_numpy(array)


def as_array(tensor: torch.Tensor, name: str) -> np.ndarray:
    """Return a copy of a tensor's values as an array, in the program's element type."""
    array = tensor.detach().cpu().numpy()
    return np.array(array, dtype=CONTRACT_NAMES.get(name, str(array.dtype)), copy=True)
