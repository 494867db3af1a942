"""Elementwise operations, activations, reductions and products as ONNX nodes."""

import math

import numpy as np
from onnx import helper

from convkit.worker.cause.other_formats import common_operations
from convkit.worker.cause.other_formats.operation_writing import (
    TURNED,
    NotTranslatedError,
    SourceOperation,
)
from convkit.worker.cause.other_formats.source_model import Translation

_UNARY = {
    "Abs": "Abs",
    "Acos": "Acos",
    "Acosh": "Acosh",
    "Asin": "Asin",
    "Asinh": "Asinh",
    "Atan": "Atan",
    "Atanh": "Atanh",
    "BitwiseNot": "Not",
    "Ceiling": "Ceil",
    "Cos": "Cos",
    "Cosh": "Cosh",
    "Erf": "Erf",
    "Exp": "Exp",
    "Floor": "Floor",
    "HSwish": "HardSwish",
    "Identity": "Identity",
    "IsInf": "IsInf",
    "IsNaN": "IsNaN",
    "Log": "Log",
    "LogicalNot": "Not",
    "Mish": "Mish",
    "Negative": "Neg",
    "Relu": "Relu",
    "Sigmoid": "Sigmoid",
    "Sign": "Sign",
    "Sin": "Sin",
    "Sinh": "Sinh",
    "SoftPlus": "Softplus",
    "SoftSign": "Softsign",
    "Sqrt": "Sqrt",
    "Tan": "Tan",
    "Tanh": "Tanh",
}
_BINARY = {
    "Add": "Add",
    "BitwiseAnd": "And",
    "BitwiseOr": "Or",
    "BitwiseXor": "Xor",
    "Divide": "Div",
    "Equal": "Equal",
    "Greater": "Greater",
    "GreaterEqual": "GreaterOrEqual",
    "Less": "Less",
    "LessEqual": "LessOrEqual",
    "LogicalAnd": "And",
    "LogicalOr": "Or",
    "LogicalXor": "Xor",
    "Maximum": "Max",
    "Minimum": "Min",
    "Multiply": "Mul",
    "Power": "Pow",
    "PRelu": "PRelu",
    "Subtract": "Sub",
}
_REDUCTIONS = {
    "ReduceL1": "ReduceL1",
    "ReduceL2": "ReduceL2",
    "ReduceMax": "ReduceMax",
    "ReduceMean": "ReduceMean",
    "ReduceMin": "ReduceMin",
    "ReduceProd": "ReduceProd",
    "ReduceSum": "ReduceSum",
}


def _reduction(operator: str) -> Translation:
    def translate(op: SourceOperation) -> None:
        rank = op.value("0").ndim
        axes = op.whole("axes", sorted({axis % rank for axis in op.integers("1")}))
        keys = {"keepdims": int(op.settings["keep_dims"])}
        op.write(operator, op.tensor("0"), axes, attributes=keys)

    return translate


def _number(op: SourceOperation, suffix: str, value: float) -> str:
    return op.constant(suffix, np.asarray(value, np.float32))


def _squared_difference(op: SourceOperation) -> None:
    difference = op.write("Sub", op.tensor("0"), op.tensor("1"), to=op.inner("difference"))
    op.write("Mul", difference, difference)


def _mod(op: SourceOperation) -> None:
    op.write("Mod", op.tensor("0"), op.tensor("1"), attributes={"fmod": 1})


def _clamp(op: SourceOperation) -> None:
    kind = op.result().dtype
    bounds = (
        op.constant(name, np.asarray(op.settings[name], kind))
        for name in ("min", "max")
        if math.isfinite(op.settings[name])
    )
    op.write("Clip", op.tensor("0"), *bounds)


def _gelu(op: SourceOperation) -> None:
    exact = op.text("approximation_mode", "erf").lower() == "erf"
    op.write("Gelu", op.tensor("0"), attributes={"approximate": "none" if exact else "tanh"})


def _swish(op: SourceOperation) -> None:
    x = op.tensor("0")
    scaled = op.write("Mul", x, op.tensor("1"), to=op.inner("scaled")) if op.has("1") else x
    op.write("Mul", x, op.write("Sigmoid", scaled, to=op.inner("sigmoid")))


def _hard_sigmoid(op: SourceOperation) -> None:
    keys = {"alpha": op.number("1"), "beta": op.number("2")}
    op.write("HardSigmoid", op.tensor("0"), attributes=keys)


def _hsigmoid(op: SourceOperation) -> None:
    op.write("HardSigmoid", op.tensor("0"), attributes={"alpha": 1 / 6, "beta": 0.5})


def _selu(op: SourceOperation) -> None:
    keys = {"alpha": op.number("1"), "gamma": op.number("2")}
    op.write("Selu", op.tensor("0"), attributes=keys)


def _elu(op: SourceOperation) -> None:
    op.write("Elu", op.tensor("0"), attributes={"alpha": float(op.settings["alpha"])})


def _round(op: SourceOperation) -> None:
    if "even" not in op.text("mode", "half_to_even").lower():
        raise NotTranslatedError("rounds halves away from zero")
    op.write("Round", op.tensor("0"))


def _with_axis(operator: str) -> Translation:
    def translate(op: SourceOperation) -> None:
        op.write(operator, op.tensor("0"), attributes={"axis": int(op.settings["axis"])})

    return translate


def _convert(op: SourceOperation) -> None:
    # float16 is written as float32: its rounding is the precision's, not the model's.
    kind = helper.np_dtype_to_tensor_dtype(op.result().dtype)
    op.write("Cast", op.tensor("0"), attributes={"to": kind})


def _operand(op: SourceOperation, name: str, flag: str) -> str:
    """Return a factor with its last axes exchanged if the product exchanges them. A constant stays
    one, under the weight's own name, by which the original's is found.
    """
    tensor, rank = op.tensor(name), op.value(name).ndim
    if not op.settings[flag] or rank < 2:
        return tensor
    perm = [*range(rank - 2), rank - 1, rank - 2]
    if tensor in op.writer.constants:
        turned = f"{tensor}{TURNED}"
        stored = op.writer.constants[tensor]
        op.writer.constants[turned] = np.ascontiguousarray(stored.transpose(perm))
        return turned
    return op.write("Transpose", tensor, to=op.inner(f"turned {name}"), attributes={"perm": perm})


def _matmul(op: SourceOperation) -> None:
    op.write("MatMul", _operand(op, "0", "transpose_a"), _operand(op, "1", "transpose_b"))


def _einsum(op: SourceOperation) -> None:
    factors = [op.tensor(str(place)) for place in range(len(op.arguments))]
    op.write("Einsum", *factors, attributes={"equation": op.text("equation", "")})


def _attention(op: SourceOperation) -> None:
    key, query = op.value("1"), op.value("0")
    perm = [*range(key.ndim - 2), key.ndim - 1, key.ndim - 2]
    keys = {"perm": perm}
    turned = op.write("Transpose", op.tensor("1"), to=op.inner("turned key"), attributes=keys)
    scores = op.write("MatMul", op.tensor("0"), turned, to=op.inner("products"))
    scale = op.tensor("4") if op.has("4") else _number(op, "scale", query.shape[-1] ** -0.5)
    scores = op.write("Mul", scores, scale, to=op.inner("scores"))
    if op.settings.get("causal"):
        future = ~np.tri(query.shape[-2], key.shape[-2], dtype=bool)
        mask = op.constant("future", np.where(future, -np.inf, 0).astype(np.float32))
        scores = op.write("Add", scores, mask, to=op.inner("masked"))
    elif op.has("3"):
        scores = _masked(op, scores)
    weights = op.write("Softmax", scores, to=op.inner("weights"), attributes={"axis": -1})
    op.write("MatMul", weights, op.tensor("2"))


def _masked(op: SourceOperation, scores: str) -> str:
    mask = op.tensor("3")
    if op.value("3").dtype != np.bool_:
        return op.write("Add", scores, mask, to=op.inner("masked"))
    low = _number(op, "low", -np.inf)
    return op.write("Where", mask, scores, low, to=op.inner("masked"))


def _cumsum(op: SourceOperation) -> None:
    axis = op.constant("axis", np.asarray(op.integer("1"), np.int64))
    flags = {name: int(op.settings[name]) for name in ("exclusive", "reverse")}
    op.write("CumSum", op.tensor("0"), axis, attributes=flags)


def _fake_quantize(op: SourceOperation) -> None:
    """Write a rounding to levels between two bounds, as the specification of FakeQuantize has it:
    clamped, scaled, rounded, and scaled to the output's bounds.
    """
    low, high, out_low, out_high = (op.tensor(str(place)) for place in (1, 2, 3, 4))
    steps = _number(op, "steps", int(op.settings["levels"]) - 1)
    above = op.write("Max", op.tensor("0"), low, to=op.inner("above"))
    within = op.write("Min", above, high, to=op.inner("within"))
    span = op.write("Sub", high, low, to=op.inner("span"))
    offset = op.write("Sub", within, low, to=op.inner("offset"))
    part = op.write("Div", offset, span, to=op.inner("part"))
    scaled = op.write("Mul", part, steps, to=op.inner("scaled"))
    level = op.write("Round", scaled, to=op.inner("level"))
    rounded = op.write("Div", level, steps, to=op.inner("rounded"))
    wide = op.write("Sub", out_high, out_low, to=op.inner("output span"))
    op.write("Add", op.write("Mul", rounded, wide, to=op.inner("moved")), out_low)


def _dequantize(op: SourceOperation) -> None:
    """Write what an IR computes of a weight in whole numbers as one node, with scales and zero
    points along the one axis that has several.
    """
    numbers, scale = op.value("0"), op.value("1")
    zero = op.value("2") if op.has("2") else np.zeros_like(scale)
    shape = (1,) * (numbers.ndim - scale.ndim) + scale.shape
    axes = [axis for axis, size in enumerate(shape) if size > 1]
    if len(axes) > 1 or (axes and shape[axes[0]] != numbers.shape[axes[0]]):
        raise NotTranslatedError("scales of blocks")
    flat = [-1] if axes else []
    zeros = np.broadcast_to(zero.reshape(-1), (scale.size,)).reshape(flat).astype(numbers.dtype)
    given = op.constant("scale", scale.reshape(flat)), op.constant("zero point", zeros)
    keys = {"axis": axes[0] if axes else 0}
    op.write("DequantizeLinear", op.tensor("0"), *given, attributes=keys)


ARITHMETIC: dict[str, Translation] = {
    **{kind: common_operations.applied(operator, "0") for kind, operator in _UNARY.items()},
    **{kind: common_operations.applied(operator, "0", "1") for kind, operator in _BINARY.items()},
    **{kind: _reduction(operator) for kind, operator in _REDUCTIONS.items()},
    "Clamp": _clamp,
    "Convert": _convert,
    "ConvertLike": _convert,
    "CumSum": _cumsum,
    "Dequantize": _dequantize,
    "Einsum": _einsum,
    "Elu": _elu,
    "FakeQuantize": _fake_quantize,
    "FloorMod": common_operations.floor_mod("0", "1"),
    "Gelu": _gelu,
    "HSigmoid": _hsigmoid,
    "HardSigmoid": _hard_sigmoid,
    "LogSoftmax": _with_axis("LogSoftmax"),
    "MatMul": _matmul,
    "Mod": _mod,
    "NotEqual": common_operations.not_equal("0", "1"),
    "ReduceLogicalAnd": _reduction("ReduceMin"),
    "ReduceLogicalOr": _reduction("ReduceMax"),
    "Round": _round,
    "ScaledDotProductAttention": _attention,
    "Select": lambda op: op.write("Where", *(op.tensor(str(place)) for place in range(3))),
    "Selu": _selu,
    "Softmax": _with_axis("Softmax"),
    "SquaredDifference": _squared_difference,
    "Swish": _swish,
}
