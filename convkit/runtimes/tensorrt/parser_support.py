"""The operators that TensorRT's ONNX parser supports, from a table, for machines without the
parser.

The table is the support matrix of onnx-tensorrt's documentation (docs/operators.md, release 10.15,
opsets 9 to 24). Standard library only.
"""

from collections.abc import Sequence

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.runtime_interface.distinct_operators import Operator, Operators
from convkit.worker.runtime_interface.registered_operators import in_use, is_custom

DOCUMENTED_RELEASE = "10.15"
OLDEST_OPSET, NEWEST_OPSET = 9, 24

_F = frozenset({"float32", "float16", "bfloat16"})
_HALF = frozenset({"float32", "float16"})
_I = frozenset({"int32", "int64"})
_B = frozenset({"bool"})
_QUANTIZED = frozenset({"int8", "float8e4m3fn", "int4", "float4e2m1"})
_ANY = _F | _I | _B


def _rows(types: frozenset[str], names: str) -> dict[str, frozenset[str]]:
    return dict.fromkeys(names.split(), types)


# Operators, and the allowed types of their data.
SUPPORTED: dict[str, frozenset[str]] = {
    **_rows(
        _F,
        "Acos Acosh Asin Asinh Atan Atanh AveragePool BatchNormalization Ceil Celu Clip Conv"
        " ConvTranspose Cos Cosh CumSum Dropout Einsum Elu Erf Exp Floor GRU Gemm GlobalAveragePool"
        " GlobalLpPool GlobalMaxPool GroupNormalization HardSigmoid HardSwish Hardmax ImageScaler"
        " InstanceNormalization IsInf LRN LSTM LayerNormalization LeakyRelu Log LogSoftmax"
        " LpNormalization LpPool MatMul MaxPool MeanVarianceNormalization PRelu ParametricSoftplus"
        " QuantizeLinear RMSNormalization RNN RandomNormal RandomNormalLike RandomUniform"
        " RandomUniformLike Reciprocal Resize RotaryEmbedding Round ScaledTanh Scan Selu Sigmoid"
        " Sin Sinh Softmax Softplus Softsign Sqrt Tan Tanh ThresholdedRelu Upsample",
    ),
    **_rows(
        _F | _I,
        "Abs Add ArgMax ArgMin DepthToSpace Div Equal Greater GreaterOrEqual IsNaN Less LessOrEqual"
        " Max Min Mod Mul Neg Pad Pow Range ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp"
        " ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare Relu Scatter"
        " ScatterElements ScatterND Shrink Sign SpaceToDepth Sub Sum TopK",
    ),
    **_rows(
        _ANY,
        "Concat Expand EyeLike Flatten Gather GatherElements GatherND Identity If Loop OneHot"
        " Reshape ReverseSequence Shape Size Slice Split Squeeze Tile Transpose Trilu Unsqueeze"
        " Where",
    ),
    **_rows(_ANY | {"uint8"}, "Cast CastLike"),
    **_rows(_ANY | _QUANTIZED, "Constant ConstantOfShape"),
    **_rows(_B, "And Not Or Xor"),
    **_rows(
        _HALF,
        "BlackmanWindow DeformConv GridSample HammingWindow HannWindow Mish NonMaxSuppression"
        " NonZero RoiAlign",
    ),
    **_rows(frozenset({"float32"}), "STFT"),
    **_rows(_F | {"int8", "float8e4m3fn"}, "Attention"),
    **_rows(_F | _I | {"int8"}, "Gelu"),
    **_rows(_F | _I | {"float8e4m3fn"}, "Mean"),
    **_rows(_F | {"int32"}, "TensorScatter"),
    **_rows(_QUANTIZED, "DequantizeLinear"),
}

# The index of the operand that is the table's data, if it is not the first; None: no operand is
# (the result is).
_DATA: dict[str, int | None] = {
    "Where": 1,
    "ConstantOfShape": None,
    "OneHot": 2,
    "Constant": None,
    "Range": 0,
}
# Operators whose first operand is a condition or a count.
_UNCHECKED = frozenset(
    [
        "If",
        "Loop",
        "Scan",
        "RandomNormal",
        "RandomUniform",
        "BlackmanWindow",
        "HammingWindow",
        "HannWindow",
    ]
)
# Computed in float32, clamped to its range.
_NARROWED = "float64"
_MOST_NAMED = 5
PLUGIN = (
    "declare the library of TensorRT plugins that has it: custom_ops: [{library:"
    " path/to/library.so, runtime: tensorrt}]."
)


def check_parser_support(operators: Operators) -> list[Finding]:
    """Return what TensorRT's parser rejects according to its documentation: V104 for an opset, T105
    for operators and types.

    T106 warns about float64, which TensorRT computes in float32.
    """
    findings = _check_opset(operators.opsets.get("", 0))
    # Which operators a plugin library has is known on a machine with TensorRT only.
    has_plugins = any(each.runtime == "tensorrt" for each in in_use().libraries)
    missing = [
        operator
        for operator in operators.operators
        if _bare(operator) not in SUPPORTED and not (has_plugins and _is_custom(operator))
    ]
    mistyped = [
        operator
        for operator in operators.operators
        if _bare(operator) in SUPPORTED
        and not _serves(operator)
        and _data_type(operator) != _NARROWED
    ]
    narrowed = [operator for operator in operators.operators if _data_type(operator) == _NARROWED]
    if missing:
        findings.append(_finding(missing, "has no layer for"))
    if mistyped:
        findings.append(_finding(mistyped, "has no layer in these types for"))
    if narrowed:
        findings.append(_narrowed(narrowed))
    return findings


def _check_opset(opset: int) -> list[Finding]:
    if OLDEST_OPSET <= opset <= NEWEST_OPSET:
        return []
    message = (
        f"the graph has opset {opset}; TensorRT's parser supports {OLDEST_OPSET} to {NEWEST_OPSET}"
    )
    wanted = min(max(opset, OLDEST_OPSET), NEWEST_OPSET)
    remedy = Remedy(f"Export with opset {wanted}.", {"export.opset": wanted})
    return [Finding("V104", message, Place(), {"opset": opset}, remedy)]


def _bare(operator: Operator) -> str:
    return operator.name.removeprefix("ai.onnx.")


def _is_custom(operator: Operator) -> bool:
    return is_custom(operator.name.rpartition(".")[0])


def _data_type(operator: Operator) -> str:
    operands, _, results = operator.types.partition(" -> ")
    place = _DATA.get(_bare(operator), 0)
    types = results.split(", ") if place is None or not operands else operands.split(", ")
    return types[min(place or 0, len(types) - 1)]


def _serves(operator: Operator) -> bool:
    kind = _data_type(operator)
    return _bare(operator) in _UNCHECKED or kind == "unknown" or kind in SUPPORTED[_bare(operator)]


def _finding(refused: Sequence[Operator], says: str) -> Finding:
    named = [f"{operator.name} ({operator.types})" for operator in refused]
    shown = ", ".join(named[:_MOST_NAMED]) + (", ..." if len(named) > _MOST_NAMED else "")
    first = refused[0]
    return Finding(
        "T105",
        f"TensorRT {says} {shown}, first at {first.node or first.name}",
        Place(node=first.node or None, module=first.module or None, source=first.source or None),
        {"operators": named, "count": sum(operator.count for operator in refused)},
        Remedy(
            f"For your own operator, {PLUGIN}"
            if all(map(_is_custom, refused))
            else "Export with a different opset or exporter, which may use other operators; change"
            " the model; or deploy it with onnxruntime."
        ),
    )


def _narrowed(operators: Sequence[Operator]) -> Finding:
    first = operators[0]
    count = sum(operator.count for operator in operators)
    return Finding(
        "T106",
        f"{count} nodes compute in float64, which TensorRT narrows to float32: {first.name}, first"
        f" at {first.node}",
        Place(node=first.node or None, module=first.module or None, source=first.source or None),
        {"operators": [operator.name for operator in operators]},
        Remedy("Compute in float32 in the model itself, so that every runtime does the same."),
    )
