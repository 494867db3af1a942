"""Maps ONNX's element types to the contract's."""

import onnx_ir

from convkit.protocol.contract import DTYPES, DType

_FROM_ONNX: dict[onnx_ir.DataType, DType] = {
    onnx_ir.DataType.BOOL: "bool",
    onnx_ir.DataType.INT4: "int4",
    onnx_ir.DataType.UINT4: "uint4",
    onnx_ir.DataType.INT8: "int8",
    onnx_ir.DataType.UINT8: "uint8",
    onnx_ir.DataType.INT16: "int16",
    onnx_ir.DataType.UINT16: "uint16",
    onnx_ir.DataType.INT32: "int32",
    onnx_ir.DataType.UINT32: "uint32",
    onnx_ir.DataType.INT64: "int64",
    onnx_ir.DataType.UINT64: "uint64",
    onnx_ir.DataType.FLOAT8E4M3FN: "float8e4m3fn",
    onnx_ir.DataType.FLOAT8E5M2: "float8e5m2",
    onnx_ir.DataType.FLOAT16: "float16",
    onnx_ir.DataType.BFLOAT16: "bfloat16",
    onnx_ir.DataType.FLOAT: "float32",
    onnx_ir.DataType.DOUBLE: "float64",
    onnx_ir.DataType.STRING: "string",
}


def contract_dtype(dtype: onnx_ir.DataType) -> DType | None:
    """Return the contract's element type for an ONNX type, or None (complex numbers)."""
    return _FROM_ONNX.get(dtype)


def onnx_dtype(dtype: DType) -> onnx_ir.DataType:
    """Return ONNX's type for an element type of the contract."""
    return next(theirs for theirs, ours in _FROM_ONNX.items() if ours == dtype)


assert set(_FROM_ONNX.values()) == set(DTYPES), "an element type of the contract has no ONNX type"
