"""Converts constants to another element type with IEEE 754 rounding, one tensor at a time, when
they are written.

Rounding is to nearest, ties to even, as in a runtime's Cast. A magnitude that is too large becomes
infinity, one that is too small becomes zero, and both keep their sign. (Raising tiny weights to the
smallest subnormal instead would multiply them by up to 2^25 and turn a harmless loss into an
error.)
"""

import numpy as np
import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.protocol.numpy_dtypes import numpy_dtype

IR_DTYPES: dict[DType, ir.DataType] = {
    "float16": ir.DataType.FLOAT16,
    "bfloat16": ir.DataType.BFLOAT16,
    "float32": ir.DataType.FLOAT,
}
NAMES: dict[ir.DataType, DType] = {data_type: name for name, data_type in IR_DTYPES.items()}

# Tensors up to this many elements are converted eagerly: a lazy one costs more than it saves.
_SMALL = 1024


def round_array(array: np.ndarray, dtype: DType, *, saturate: bool = False) -> np.ndarray:
    """Round a float32 array to another type.

    With `saturate`, finite values beyond the type's range become its largest finite value instead
    of infinity; infinities and NaN are unchanged.
    """
    target = numpy_dtype(dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = array.astype(target)
    if saturate:
        beyond = np.isinf(rounded) & np.isfinite(array)
        if beyond.any():
            # The largest finite number is the one below infinity.
            largest = np.nextafter(target.type(np.inf), target.type(0))
            rounded[beyond] = np.copysign(largest, array[beyond]).astype(target)
    return rounded


def convert_tensor(
    tensor: ir.TensorProtocol, dtype: DType, name: str, *, saturate: bool = False
) -> ir.TensorProtocol:
    """Return a tensor in another float type; a large one is read and rounded only when written or
    accessed.
    """

    def rounded() -> ir.Tensor:
        array = read_tensor(tensor)
        return ir.Tensor(
            round_array(array, dtype, saturate=saturate), dtype=IR_DTYPES[dtype], name=name
        )

    if tensor.size <= _SMALL:
        return rounded()
    return ir.LazyTensor(
        rounded, dtype=IR_DTYPES[dtype], shape=ir.Shape(list(tensor.shape)), name=name
    )


def read_tensor(tensor: ir.TensorProtocol) -> np.ndarray:
    """Return a tensor's values; external files are mapped, and unmapped when the array is
    released.
    """
    if not isinstance(tensor, ir.ExternalTensor):
        return tensor.numpy()
    # A tensor keeps its mapping alive; with a separate tensor, it ends with the array.
    own = ir.ExternalTensor(
        tensor.location,
        tensor.offset,
        tensor.length,
        tensor.dtype,
        shape=ir.Shape(list(tensor.shape)),
        name=tensor.name or "",
        base_dir=tensor.base_dir,
    )
    return own.numpy()
