"""Exchanges values with an onnxruntime session, also those of bfloat16, which numpy lacks: as bits
in a buffer whose element type is stated. Needs only onnxruntime and numpy.
"""

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from convkit.dtypes import BFLOAT16_BITS, dtype_name

if TYPE_CHECKING:
    import onnxruntime

_TENSOR = "tensor(bfloat16)"
# Its number in ONNX's TensorProto.DataType.
_ELEMENT = 16


def run_session(
    session: "onnxruntime.InferenceSession",
    names: Sequence[str],
    feeds: Mapping[str, np.ndarray],
    options: "onnxruntime.RunOptions",
) -> list[object]:
    """Return the named outputs; those of bfloat16 as pairs of bytes (`BFLOAT16_BITS`).

    bfloat16 inputs are such pairs or ml_dtypes' arrays. Raises onnxruntime's own errors.
    """
    import onnxruntime

    arguments = (*session.get_inputs(), *session.get_outputs())
    capable = hasattr(onnxruntime.OrtValue, "ortvalue_from_numpy_with_onnx_type")
    if not capable or all(argument.type != _TENSOR for argument in arguments):
        return list(session.run(list(names), dict(feeds), options))
    given = {name: _given(values) for name, values in feeds.items()}
    # The values of `given` are views of arrays that `feeds` keeps alive.
    returned = session.run_with_ort_values(list(names), given, options)
    return [_array(value) for value in returned]


def _given(values: np.ndarray) -> "onnxruntime.OrtValue":
    import onnxruntime

    ort = onnxruntime.OrtValue
    if dtype_name(values.dtype) != "bfloat16":
        plain = values.astype(object) if values.dtype.kind == "U" else values
        return ort.ortvalue_from_numpy(np.asarray(plain, order="C"))
    bits = np.asarray(values, order="C").view(np.uint16)
    return ort.ortvalue_from_numpy_with_onnx_type(bits, _ELEMENT)


def _array(value: "onnxruntime.OrtValue") -> object:
    """Return a copy of a value, which ends with the session's next run."""
    if value.data_type() != _TENSOR:
        return value.numpy()
    bits = np.empty(tuple(value.shape()), np.uint16)
    if bits.size:
        ctypes.memmove(bits.ctypes.data, value.data_ptr(), bits.nbytes)
    return bits.view(BFLOAT16_BITS)
