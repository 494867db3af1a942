"""Converts constants to another element type (see `array_rounding`), one tensor at a time, when
they are written.
"""

import numpy as np
import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.worker.precision.array_rounding import round_array

IR_DTYPES: dict[DType, ir.DataType] = {
    "float16": ir.DataType.FLOAT16,
    "bfloat16": ir.DataType.BFLOAT16,
    "float32": ir.DataType.FLOAT,
}
NAMES: dict[ir.DataType, DType] = {data_type: name for name, data_type in IR_DTYPES.items()}

# Tensors up to this many elements are converted eagerly: a lazy one costs more than it saves.
_SMALL = 1024


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
