"""Maps the contract's element types to torch's, and converts numpy arrays to torch tensors and
back.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, get_args

import numpy as np

from convkit.protocol.contract import DType, TensorSpec
from convkit.protocol.numpy_dtypes import BFLOAT16_BITS
from convkit.worker.job_context import StageFailedError

if TYPE_CHECKING:
    import torch


def torch_dtype(dtype: DType) -> "torch.dtype":
    """Return torch's element type; raises StageFailedError for a type that torch does not support
    (int4, string).
    """
    import torch

    found = getattr(
        torch,
        {"float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2"}.get(dtype, dtype),
        None,
    )
    if found is None or dtype in ("int4", "uint4"):
        raise StageFailedError(f"dtype {dtype}: torch has no tensors of this element type")
    return found


def contract_dtype(dtype: "torch.dtype") -> DType | None:
    """Return the contract's element type for a torch type, or None (complex numbers)."""
    names: dict[str, DType] = {name.replace("float8", "float8_"): name for name in get_args(DType)}
    return names.get(str(dtype).removeprefix("torch."))


def to_tensor(array: np.ndarray, dtype: DType) -> "torch.Tensor":
    """Return a tensor with its own memory, in the contract's element type.

    bfloat16 and float8 arrays may be in ml_dtypes' types or in float32: numpy has none of its own.
    Untyped pairs of bytes are bfloat16, as stored in .npy files.
    """
    import torch

    wanted = torch_dtype(dtype)
    if array.dtype == BFLOAT16_BITS:
        return (
            torch.from_numpy(np.array(array, order="C", copy=True).view(np.int16))
            .view(torch.bfloat16)
            .to(wanted)
        )
    if array.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
        array = array.astype(np.float32)
    return torch.from_numpy(np.array(array, order="C", copy=True)).to(wanted)


def to_tensors(
    specs: Iterable[TensorSpec], arrays: Mapping[str, np.ndarray]
) -> dict[str, "torch.Tensor"]:
    """Return the tensors of a contract's inputs, in its order."""
    return {spec.name: to_tensor(arrays[spec.name], spec.dtype) for spec in specs}


def to_array(tensor: "torch.Tensor") -> np.ndarray:
    """Return a tensor's values; bfloat16 and float8 are returned as float32, which represents them
    exactly.
    """
    import torch

    # numpy has no view of what torch conjugates or negates only when it is read.
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        tensor = tensor.float()
    return np.array(tensor.numpy(), copy=True)


def to_arrays(
    names: Sequence[str], found: "torch.Tensor | Sequence[torch.Tensor]"
) -> dict[str, np.ndarray]:
    """Return what a module returned, by the outputs' names in their order."""
    import torch

    tensors = (found,) if isinstance(found, torch.Tensor) else found
    return {name: to_array(each) for name, each in zip(names, tensors, strict=True)}
