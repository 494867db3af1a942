"""Maps the contract's element types to numpy's. bfloat16 and the 4- and 8-bit types need
ml_dtypes.
"""

import numpy as np

from convkit.protocol.contract import DTYPES, DType

_NATIVE: dict[DType, type[np.generic]] = {
    "bool": np.bool_,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "float16": np.float16,
    "float32": np.float32,
    "float64": np.float64,
    "string": np.str_,
}
_ML_DTYPES: dict[DType, str] = {
    "int4": "int4",
    "uint4": "uint4",
    "float8e4m3fn": "float8_e4m3fn",
    "float8e5m2": "float8_e5m2",
    "bfloat16": "bfloat16",
}
_NAMES: dict[str, DType] = {np.dtype(kind).name: name for name, kind in _NATIVE.items()}
_NAMES |= {name: dtype for dtype, name in _ML_DTYPES.items()}

# How numpy stores bfloat16 in an .npy file: as two untyped bytes. No other contract type is stored
# this way.
BFLOAT16_BITS = np.dtype("V2")


class DTypeUnavailableError(Exception):
    """numpy lacks this element type; the message names the package that adds it."""


def numpy_dtype(dtype: DType) -> np.dtype:
    """Return numpy's type for a contract type; raises DTypeUnavailableError without ml_dtypes."""
    if dtype in _NATIVE:
        return np.dtype(_NATIVE[dtype])
    try:
        import ml_dtypes
    except ImportError as error:
        message = f"numpy has no {dtype} of its own; add ml_dtypes to the recipe's tools"
        raise DTypeUnavailableError(message) from error
    return np.dtype(getattr(ml_dtypes, _ML_DTYPES[dtype]))


def dtype_name(dtype: np.dtype) -> str:
    """Return the contract's name for a numpy type, or numpy's own name if the contract has none."""
    if dtype == BFLOAT16_BITS:
        return "bfloat16"
    if dtype.kind == "U":  # numpy's name has the longest text's length
        return "string"
    return _NAMES.get(dtype.name, dtype.name)


def without_bits(values: np.ndarray) -> np.ndarray:
    """Return bfloat16 values, which numpy cannot compute with, as float32; others as they are."""
    if dtype_name(values.dtype) != "bfloat16":
        return values
    # They are the upper halves of float32 numbers.
    bits = np.ascontiguousarray(values).view(BFLOAT16_BITS).view(np.uint16).astype(np.uint32)
    return (bits << np.uint32(16)).view(np.float32)


def is_float(dtype: DType) -> bool:
    """Return True for floating-point element types."""
    return dtype.startswith(("float", "bfloat"))


assert set(_NATIVE) | set(_ML_DTYPES) == set(DTYPES), (
    "an element type of the contract has no numpy type"
)
