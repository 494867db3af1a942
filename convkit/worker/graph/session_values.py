"""Exchanges values with an onnxruntime session, also those of bfloat16, which numpy lacks: as bits
in a buffer whose element type is stated. Needs only onnxruntime and numpy.
"""

import ctypes
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from convkit.protocol.numpy_dtypes import BFLOAT16_BITS, dtype_name

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
    *,
    as_bits: bool,
) -> list[object]:
    """Return the named outputs; with `as_bits`, those of bfloat16 as pairs of bytes
    (`BFLOAT16_BITS`).

    bfloat16 inputs are such pairs or ml_dtypes' arrays. Raises onnxruntime's own errors, and
    ValueError for an input that cannot be exchanged in this way.
    """
    if not as_bits:
        return list(session.run(list(names), dict(feeds), options))
    given = {name: ort_value(name, values) for name, values in feeds.items()}
    for argument in session.get_inputs():  # onnxruntime's own message names no input
        if (value := given.get(argument.name)) and value.data_type() != argument.type:
            raise ValueError(
                f"input {argument.name!r} is a {value.data_type()}; the model has a {argument.type}"
            )
    # The values of `given` are views of arrays that `feeds` keeps alive.
    returned = session.run_with_ort_values(list(names), given, options)
    return [array_of(value) for value in returned]


def run_outputs(
    session: "onnxruntime.InferenceSession", names: Sequence[str], feeds: Mapping[str, np.ndarray]
) -> list[Any]:
    """Return the named outputs as arrays, those of bfloat16 as pairs of bytes (`BFLOAT16_BITS`).

    Raises as `run_session` does.
    """
    import onnxruntime

    as_bits = needs_bits(session)
    return run_session(session, names, feeds, onnxruntime.RunOptions(), as_bits=as_bits)


def needs_bits(session: "onnxruntime.InferenceSession") -> bool:
    """Return True for bfloat16 inputs or outputs, if this release can exchange them."""
    import onnxruntime

    arguments = (*session.get_inputs(), *session.get_outputs())
    capable = hasattr(onnxruntime.OrtValue, "ortvalue_from_numpy_with_onnx_type")
    return capable and any(argument.type == _TENSOR for argument in arguments)


def ort_value(name: str, values: np.ndarray) -> "onnxruntime.OrtValue":
    """Return an array as onnxruntime's own value, a view of it if possible; raises ValueError for
    texts.
    """
    import onnxruntime

    ort = onnxruntime.OrtValue
    if values.dtype.kind in "UO":
        raise ValueError(
            f"onnxruntime does not accept strings ({name!r}) in a model with bfloat16 inputs or"
            " outputs"
        )
    if dtype_name(values.dtype) != "bfloat16":
        return ort.ortvalue_from_numpy(np.asarray(values, order="C"))
    bits = np.asarray(values, order="C").view(np.uint16)
    return ort.ortvalue_from_numpy_with_onnx_type(bits, _ELEMENT)


def array_of(value: "onnxruntime.OrtValue") -> object:
    """Return a copy of a value, which ends with the session's next run."""
    if value.data_type() != _TENSOR:
        values = value.numpy()
        return values if values.dtype.kind == "O" else values.copy()
    bits = np.empty(tuple(value.shape()), np.uint16)
    if bits.size:
        ctypes.memmove(bits.ctypes.data, value.data_ptr(), bits.nbytes)
    return bits.view(BFLOAT16_BITS)
