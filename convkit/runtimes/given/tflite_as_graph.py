"""TFLite's float operators as ONNX nodes. Images are NHWC there, and NCHW in ONNX."""

import numpy as np
from onnx import helper

from convkit.worker.cause.other_formats import common_operations
from convkit.worker.cause.other_formats.operation_writing import (
    TURNED,
    NotTranslatedError,
    SourceOperation,
)
from convkit.worker.cause.other_formats.source_model import Translation

# schema.fbs: ActivationFunctionType, Padding.
_ACTIVATIONS = {0: None, 1: "Relu", 3: "Clip", 4: "Tanh"}
_PADDING = {0: "SAME_UPPER", 1: "VALID"}
_TO_FRONT, _TO_BACK = [0, 3, 1, 2], [0, 2, 3, 1]

_UNARY = {
    "RELU": "Relu",
    "LOGISTIC": "Sigmoid",
    "TANH": "Tanh",
    "EXP": "Exp",
    "LOG": "Log",
    "SQRT": "Sqrt",
    "ABS": "Abs",
    "NEG": "Neg",
    "SIN": "Sin",
    "COS": "Cos",
    "ELU": "Elu",
    "FLOOR": "Floor",
    "CEIL": "Ceil",
    "ROUND": "Round",
    "HARD_SWISH": "HardSwish",
    "LOGICAL_NOT": "Not",
    "SIGN": "Sign",
}
_BINARY = {
    "ADD": "Add",
    "SUB": "Sub",
    "MUL": "Mul",
    "DIV": "Div",
    "POW": "Pow",
    "MAXIMUM": "Max",
    "MINIMUM": "Min",
    "LESS": "Less",
    "LESS_EQUAL": "LessOrEqual",
    "GREATER": "Greater",
    "GREATER_EQUAL": "GreaterOrEqual",
    "EQUAL": "Equal",
    "LOGICAL_AND": "And",
    "LOGICAL_OR": "Or",
}
_REDUCTIONS = {
    "MEAN": "ReduceMean",
    "SUM": "ReduceSum",
    "REDUCE_MAX": "ReduceMax",
    "REDUCE_MIN": "ReduceMin",
    "REDUCE_PROD": "ReduceProd",
}


def _setting(op: SourceOperation, name: str) -> int:
    return int(op.settings.get(name, 0) or 0)


def _activated(op: SourceOperation, computed: str) -> str:
    """Return where an operator with a fused activation leaves its own result."""
    return op.out if not _setting(op, "fusedActivationFunction") else op.inner(computed)


def _activate(op: SourceOperation, computed: str) -> None:
    kind = _setting(op, "fusedActivationFunction")
    if not kind:
        return
    if kind not in _ACTIVATIONS:
        raise NotTranslatedError(f"activation {kind}")
    bounds = []
    if _ACTIVATIONS[kind] == "Clip":
        bounds = [op.constant(str(each), np.asarray(each, np.float32)) for each in (0.0, 6.0)]
    op.write(str(_ACTIVATIONS[kind]), computed, *bounds)


def _binary(operator: str) -> Translation:
    def translate(op: SourceOperation) -> None:
        to = _activated(op, "computed")
        _activate(op, op.write(operator, op.tensor("0"), op.tensor("1"), to=to))

    return translate


def _reduction(operator: str) -> Translation:
    def translate(op: SourceOperation) -> None:
        axes = op.whole("axes", op.integers("1"))
        keys = {"keepdims": _setting(op, "keepDims")}
        op.write(operator, op.tensor("0"), axes, attributes=keys)

    return translate


def _turned(op: SourceOperation, argument: str, perm: list[int]) -> str:
    """Return a weight with its axes in ONNX's order, under its own name."""
    weight = op.tensor(argument)
    if weight not in op.writer.constants:
        raise NotTranslatedError("a weight that is computed")
    name = f"{weight}{TURNED}"
    op.writer.constants[name] = np.ascontiguousarray(op.writer.constants[weight].transpose(perm))
    return name


def _image(op: SourceOperation, argument: str = "0") -> str:
    keys = {"perm": _TO_FRONT}
    return op.write("Transpose", op.tensor(argument), to=op.inner("front"), attributes=keys)


def _back(op: SourceOperation, computed: str) -> None:
    to = _activated(op, "back")
    _activate(op, op.write("Transpose", computed, to=to, attributes={"perm": _TO_BACK}))


def _convolution(*, depthwise: bool) -> Translation:
    def translate(op: SourceOperation) -> None:
        x = _image(op)
        # [1, height, width, channels] depthwise, otherwise [out, height, width, in].
        weight = _turned(op, "1", [3, 0, 1, 2] if depthwise else [0, 3, 1, 2])
        channels = op.value("0").shape[3]
        keys = {
            "strides": [_setting(op, "strideH"), _setting(op, "strideW")],
            "dilations": [_setting(op, "dilationHFactor"), _setting(op, "dilationWFactor")],
            "auto_pad": _PADDING[_setting(op, "padding")],
            "group": channels if depthwise else channels // op.value("1").shape[3],
        }
        bias = [op.tensor("2")] if op.has("2") else []
        _back(op, op.write("Conv", x, weight, *bias, to=op.inner("product"), attributes=keys))

    return translate


def _pool(operator: str) -> Translation:
    def translate(op: SourceOperation) -> None:
        keys = {
            "kernel_shape": [_setting(op, "filterHeight"), _setting(op, "filterWidth")],
            "strides": [_setting(op, "strideH"), _setting(op, "strideW")],
            "auto_pad": _PADDING[_setting(op, "padding")],
        }
        _back(op, op.write(operator, _image(op), to=op.inner("pooled"), attributes=keys))

    return translate


def _fully_connected(op: SourceOperation) -> None:
    x, width = op.tensor("0"), op.value("1").shape[1]
    if op.value("0").ndim != 2:
        x = op.write("Reshape", x, op.whole("rows", [-1, width]), to=op.inner("rows of x"))
    product = op.write("MatMul", x, _turned(op, "1", [1, 0]), to=op.inner("product"))
    if op.has("2"):
        product = op.write("Add", product, op.tensor("2"), to=op.inner("sum"))
    shape = op.whole("shape", op.result().shape)
    _activate(op, op.write("Reshape", product, shape, to=_activated(op, "shaped")))


def _matmul(op: SourceOperation) -> None:
    sides = []
    for place, flag in (("0", "adjX"), ("1", "adjY")):
        name, rank = op.tensor(place), op.value(place).ndim
        if _setting(op, flag):
            keys = {"perm": [*range(rank - 2), rank - 1, rank - 2]}
            name = op.write("Transpose", name, to=op.inner(f"turned {place}"), attributes=keys)
        sides.append(name)
    op.write("MatMul", *sides)


def _softmax(op: SourceOperation) -> None:
    if float(op.settings.get("beta", 1.0)) != 1.0:
        raise NotTranslatedError("beta")
    op.write("Softmax", op.tensor("0"), attributes={"axis": -1})


def _rsqrt(op: SourceOperation) -> None:
    op.write("Reciprocal", op.write("Sqrt", op.tensor("0"), to=op.inner("root")))


def _relu6(op: SourceOperation) -> None:
    bounds = (op.constant(str(each), np.asarray(each, np.float32)) for each in (0.0, 6.0))
    op.write("Clip", op.tensor("0"), *bounds)


def _reshaped(op: SourceOperation) -> None:
    op.write("Reshape", op.tensor("0"), op.whole("shape", op.result().shape))


def _transpose(op: SourceOperation) -> None:
    op.write("Transpose", op.tensor("0"), attributes={"perm": op.integers("1")})


def _concatenation(op: SourceOperation) -> None:
    parts = [op.tensor(str(place)) for place in range(len(op.arguments))]
    to = _activated(op, "joined")
    _activate(op, op.write("Concat", *parts, to=to, attributes={"axis": _setting(op, "axis")}))


def _pad(op: SourceOperation) -> None:
    pairs = op.value("1")
    pads = op.whole("pads", [*map(int, pairs[:, 0]), *map(int, pairs[:, 1])])
    op.write("Pad", op.tensor("0"), pads, *([op.tensor("2")] if op.has("2") else []))


def _mirror_pad(op: SourceOperation) -> None:
    if _setting(op, "mode"):
        raise NotTranslatedError("symmetric padding")
    pairs = op.value("1")
    pads = op.whole("pads", [*map(int, pairs[:, 0]), *map(int, pairs[:, 1])])
    op.write("Pad", op.tensor("0"), pads, attributes={"mode": "reflect"})


def _pack(op: SourceOperation) -> None:
    axis = _setting(op, "axis")
    axes = op.whole("axes", [axis])
    parts = [
        op.write("Unsqueeze", op.tensor(str(place)), axes, to=op.inner(f"part {place}"))
        for place in range(len(op.arguments))
    ]
    op.write("Concat", *parts, attributes={"axis": axis})


def _gather(op: SourceOperation) -> None:
    keys = {"axis": _setting(op, "axis")}
    op.write("Gather", op.tensor("0"), op.tensor("1"), attributes=keys)


def _strided_slice(op: SourceOperation) -> None:
    masks = ("beginMask", "endMask", "ellipsisMask", "newAxisMask", "shrinkAxisMask")
    begin, end, ellipsis, new, shrink = (_setting(op, name) for name in masks)
    if ellipsis or new:
        raise NotTranslatedError("an ellipsis or a new axis")
    begins, ends, steps = (op.integers(each) for each in "123")
    shape = op.value("0").shape
    for axis, size in enumerate(shape[: len(begins)]):
        if shrink >> axis & 1:
            begins[axis] %= size
            ends[axis], steps[axis] = begins[axis] + 1, 1
            continue
        if steps[axis] < 0 and (begin | end) >> axis & 1:
            raise NotTranslatedError("a mask with a negative step")
        begins[axis] = 0 if begin >> axis & 1 else begins[axis]
        ends[axis] = size if end >> axis & 1 else ends[axis]
    numbers = {"begins": begins, "ends": ends, "axes": [*range(len(begins))], "steps": steps}
    gone = [axis for axis in range(len(begins)) if shrink >> axis & 1]
    to = op.inner("cut") if gone else op.out
    parts = [op.whole(name, each) for name, each in numbers.items()]
    cut = op.write("Slice", op.tensor("0"), *parts, to=to)
    if gone:
        op.write("Squeeze", cut, op.whole("dropped", gone))


def _cast(op: SourceOperation) -> None:
    kind = helper.np_dtype_to_tensor_dtype(op.result().dtype)
    op.write("Cast", op.tensor("0"), attributes={"to": kind})


def _leaky_relu(op: SourceOperation) -> None:
    keys = {"alpha": float(op.settings.get("alpha", 0.0))}
    op.write("LeakyRelu", op.tensor("0"), attributes=keys)


def _gelu(op: SourceOperation) -> None:
    keys = {"approximate": "tanh" if op.settings.get("approximate") else "none"}
    op.write("Gelu", op.tensor("0"), attributes=keys)


TRANSLATIONS: dict[str, Translation] = {
    **{kind: common_operations.applied(operator, "0") for kind, operator in _UNARY.items()},
    **{kind: _binary(operator) for kind, operator in _BINARY.items()},
    **{kind: _reduction(operator) for kind, operator in _REDUCTIONS.items()},
    "AVERAGE_POOL_2D": _pool("AveragePool"),
    "BATCH_MATMUL": _matmul,
    "CAST": _cast,
    "CONCATENATION": _concatenation,
    "CONV_2D": _convolution(depthwise=False),
    "DEPTHWISE_CONV_2D": _convolution(depthwise=True),
    "EXPAND_DIMS": _reshaped,
    "FULLY_CONNECTED": _fully_connected,
    "GATHER": _gather,
    "GELU": _gelu,
    "LEAKY_RELU": _leaky_relu,
    "MAX_POOL_2D": _pool("MaxPool"),
    "MIRROR_PAD": _mirror_pad,
    "PACK": _pack,
    "PAD": _pad,
    "PADV2": _pad,
    "RELU6": _relu6,
    "RESHAPE": _reshaped,
    "RSQRT": _rsqrt,
    "SELECT_V2": lambda op: op.write("Where", op.tensor("0"), op.tensor("1"), op.tensor("2")),
    "SOFTMAX": _softmax,
    "SQUARE": lambda op: op.write("Mul", op.tensor("0"), op.tensor("0")),
    "SQUEEZE": _reshaped,
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE": _transpose,
}
