"""Elementwise operations, activations, reductions and products as ONNX nodes."""

import math

import numpy as np

from convkit.worker.cause.other_formats import shared_translations as shared
from convkit.worker.cause.other_formats.source_operation import (
    NotTranslatedError,
    SourceOperation,
    Translation,
)
from convkit.worker.graph.operators.composed_operators import attention

_UNARY = {
    **{
        name: name
        for name in (
            *("Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Erf"),
            *("Exp", "Floor", "Identity", "IsInf", "IsNaN", "Log", "Mish", "Relu", "Sigmoid"),
            *("Sign", "Sin", "Sinh", "Sqrt", "Tan", "Tanh"),
        )
    },
    "BitwiseNot": "Not",
    "Ceiling": "Ceil",
    "HSwish": "HardSwish",
    "LogicalNot": "Not",
    "Negative": "Neg",
    "SoftPlus": "Softplus",
    "SoftSign": "Softsign",
}
_BINARY = {
    **{name: name for name in ("Add", "Equal", "Greater", "Less", "PRelu")},
    **{f"Bitwise{name}": name for name in ("And", "Or", "Xor")},
    **{f"Logical{name}": name for name in ("And", "Or", "Xor")},
    "Divide": "Div",
    "GreaterEqual": "GreaterOrEqual",
    "LessEqual": "LessOrEqual",
    "Maximum": "Max",
    "Minimum": "Min",
    "Multiply": "Mul",
    "Power": "Pow",
    "Subtract": "Sub",
}
_REDUCTIONS = {
    **{f"Reduce{name}": name for name in ("L1", "L2", "Max", "Mean", "Min", "Prod", "Sum")},
    "ReduceLogicalAnd": "Min",
    "ReduceLogicalOr": "Max",
}


def _clamp(op: SourceOperation) -> None:
    bounds = {name: op.number(name) for name in ("min", "max")}
    held = (
        op.constant(name, np.asarray(bound, op.result().dtype))
        for name, bound in bounds.items()
        if math.isfinite(bound)
    )
    op.write("Clip", op.tensor("x0"), *held)


def _round(op: SourceOperation) -> None:
    if "even" not in op.text("mode", "half_to_even"):
        raise NotTranslatedError("rounds halves away from zero")
    op.compute("Round(x0)")


def _attention(op: SourceOperation) -> None:
    query, key, value = (op.tensor(f"x{place}") for place in range(3))
    width, steps = op.shape("x0")[-1], (op.shape("x0")[-2], op.shape("x1")[-2])
    scale = op.tensor("x4") if op.has("x4") else width**-0.5
    mask = op.tensor("x3") if op.has("x3") else ""
    causal = op.flag("causal")
    if causal:
        future = np.where(np.tri(*steps, dtype=bool), 0, -np.inf)
        mask = op.constant("future", future.astype(np.float32))
    chooses = bool(mask) and not causal and op.value("x3").dtype == np.bool_
    attention(op, (query, key, value), len(op.shape("x1")), scale, mask, chooses=chooses)


def _fake_quantize(op: SourceOperation) -> None:
    """Write a rounding to levels between two bounds, as the specification of FakeQuantize has it:
    clamped, scaled, rounded, and scaled to the output's bounds.
    """
    part = "Div(Sub(Min(Max(x0, x1), x2), x1), Sub(x2, x1))"
    level = f"Div(Round(Mul({part}, steps)), steps)"
    steps = op.constant("steps", float(op.integer("levels") - 1))
    op.compute(f"Add(Mul({level}, Sub(x4, x3)), x3)", steps=steps)


def _dequantize(op: SourceOperation) -> None:
    """Write what an IR computes of a weight in whole numbers as one node, with scales and zero
    points along the one axis that has several.
    """
    numbers, scale = op.value("x0"), op.value("x1")
    zero = op.value("x2") if op.has("x2") else np.zeros_like(scale)
    shape = (1,) * (numbers.ndim - scale.ndim) + scale.shape
    axes = [axis for axis, size in enumerate(shape) if size > 1]
    if len(axes) > 1 or (axes and shape[axes[0]] != numbers.shape[axes[0]]):
        raise NotTranslatedError("scales of blocks")
    flat = [-1] if axes else []
    zeros = np.broadcast_to(zero.reshape(-1), (scale.size,)).reshape(flat).astype(numbers.dtype)
    given = op.constant("scale", scale.reshape(flat)), op.constant("zero point", zeros)
    op.write("DequantizeLinear", op.tensor("x0"), *given, axis=axes[0] if axes else 0)


ARITHMETIC: dict[str, Translation] = {
    **{kind: f"{operator}(x0)" for kind, operator in _UNARY.items()},
    **{kind: f"{operator}(x0, x1)" for kind, operator in _BINARY.items()},
    **{
        kind: shared.reduction(f"Reduce{name}", "x0", "x1", "keep_dims")
        for kind, name in _REDUCTIONS.items()
    },
    "Clamp": _clamp,
    "Convert": shared.casted("x0"),
    "ConvertLike": shared.casted("x0"),
    "CumSum": shared.cumulative_sum("x0", "x1"),
    "Dequantize": _dequantize,
    "Einsum": lambda op: op.write(
        "Einsum", *op.tensors(*op.step.arguments), equation=op.given("equation")
    ),
    "Elu": "Elu(x0, alpha=alpha)",
    "FakeQuantize": _fake_quantize,
    "FloorMod": shared.floor_mod("x0", "x1"),
    "Gelu": shared.gelu("x0", "approximation_mode", {"erf": "none", "tanh": "tanh"}, default="erf"),
    "HSigmoid": f"HardSigmoid(x0, alpha={1 / 6}, beta=0.5)",
    "HardSigmoid": "HardSigmoid(x0, alpha=x1, beta=x2)",
    "LogSoftmax": "LogSoftmax(x0, axis=axis)",
    "MatMul": shared.matmul("x0", "x1", ("transpose_a", "transpose_b")),
    "Mod": "Mod(x0, x1, fmod=1)",
    "NotEqual": "Not(Equal(x0, x1))",
    "Round": _round,
    "ScaledDotProductAttention": _attention,
    "Select": "Where(x0, x1, x2)",
    "Selu": "Selu(x0, alpha=x1, gamma=x2)",
    "Softmax": "Softmax(x0, axis=axis)",
    "SquaredDifference": "Mul(Sub(x0, x1), Sub(x0, x1))",
    "Swish": lambda op: op.compute(
        "Mul(x0, Sigmoid(Mul(x0, x1)))" if op.has("x1") else "Mul(x0, Sigmoid(x0))"
    ),
}
