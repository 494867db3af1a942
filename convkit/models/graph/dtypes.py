"""Maps the contract's element types to ONNX's."""

import onnx_ir

from convkit.tensors import DTYPES, DType

_TO_ONNX: dict[DType, onnx_ir.DataType] = {
    "bool": onnx_ir.DataType.BOOL,
    "int4": onnx_ir.DataType.INT4,
    "uint4": onnx_ir.DataType.UINT4,
    "int8": onnx_ir.DataType.INT8,
    "uint8": onnx_ir.DataType.UINT8,
    "int16": onnx_ir.DataType.INT16,
    "uint16": onnx_ir.DataType.UINT16,
    "int32": onnx_ir.DataType.INT32,
    "uint32": onnx_ir.DataType.UINT32,
    "int64": onnx_ir.DataType.INT64,
    "uint64": onnx_ir.DataType.UINT64,
    "float8e4m3fn": onnx_ir.DataType.FLOAT8E4M3FN,
    "float8e5m2": onnx_ir.DataType.FLOAT8E5M2,
    "float16": onnx_ir.DataType.FLOAT16,
    "bfloat16": onnx_ir.DataType.BFLOAT16,
    "float32": onnx_ir.DataType.FLOAT,
    "float64": onnx_ir.DataType.DOUBLE,
    "string": onnx_ir.DataType.STRING,
}
_FROM_ONNX: dict[onnx_ir.DataType, DType] = {onnx: dtype for dtype, onnx in _TO_ONNX.items()}


def onnx_dtype(dtype: DType) -> onnx_ir.DataType:
    """Return ONNX's element type for a contract type."""
    return _TO_ONNX[dtype]


def contract_dtype(dtype: onnx_ir.DataType) -> DType | None:
    """Return the contract's element type for an ONNX type, or None (complex numbers)."""
    return _FROM_ONNX.get(dtype)


assert set(_TO_ONNX) == set(DTYPES), "an element type of the contract has no ONNX type"
