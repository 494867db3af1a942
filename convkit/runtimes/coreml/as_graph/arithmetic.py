"""Elementwise operations, activations, reductions and products as ONNX nodes."""

import numpy as np

from convkit.worker.cause.other_formats import shared_translations as shared
from convkit.worker.cause.other_formats.source_operation import (
    NotTranslatedError,
    SourceOperation,
    Translation,
)
from convkit.worker.graph.operators.composed_operators import GELU_SIGMOID, attention

_UNARY = {
    **{
        name.lower(): name
        for name in (
            *("Abs", "Acos", "Asin", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp"),
            *("Floor", "Identity", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sinh"),
            *("Softplus", "Softsign", "Sqrt", "Tan", "Tanh"),
        )
    },
    "logical_not": "Not",
}
_BINARY = {
    **{name.lower(): name for name in ("Add", "Sub", "Mul", "Pow", "Equal", "Less", "Greater")},
    "real_div": "Div",
    "maximum": "Max",
    "minimum": "Min",
    "less_equal": "LessOrEqual",
    "greater_equal": "GreaterOrEqual",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_xor": "Xor",
}
_REDUCTIONS = {
    **{f"reduce_{name.lower()}": name for name in ("Mean", "Sum", "Max", "Min", "Prod")},
    "reduce_l1_norm": "L1",
    "reduce_l2_norm": "L2",
    "reduce_sum_square": "SumSquare",
    "reduce_log_sum": "LogSum",
    "reduce_log_sum_exp": "LogSumExp",
}
_GELU = {"exact": "none", "tanh_approximation": "tanh"}


def _floor_div(op: SourceOperation) -> None:
    if op.value("x").dtype.kind != "f":
        raise NotTranslatedError("ONNX divides integers toward zero")
    op.compute("Floor(Div(x, y))")


def _of_shifted(formula: str) -> Translation:
    """Compute a function of `x + epsilon`."""

    def translate(op: SourceOperation) -> None:
        op.compute(formula.format("Add(x, epsilon)" if op.number("epsilon", 0.0) else "x"))

    return translate


def _gelu(op: SourceOperation) -> None:
    if op.text("mode") == "sigmoid_approximation":
        op.compute(GELU_SIGMOID)
    else:
        op.translate(shared.gelu("x", "mode", _GELU, default="exact"))


def _along_channels(op: SourceOperation, name: str) -> np.ndarray:
    return op.value(name).reshape(-1, *[1] * (op.value("x").ndim - 2))


def _prelu(op: SourceOperation) -> None:
    op.write("PRelu", op.tensor("x"), op.constant("alpha", _along_channels(op, "alpha")))


def _softplus_parametric(op: SourceOperation) -> None:
    factors = {name: op.constant(name, _along_channels(op, name)) for name in ("alpha", "beta")}
    op.compute("Mul(Softplus(Mul(x, beta)), alpha)", **factors)


def _linear(op: SourceOperation) -> None:
    if op.tensor("weight") not in op.constants:
        raise NotTranslatedError("a weight that is computed")
    product = "MatMul(x, turned)"
    formula = f"Add({product}, bias)" if op.has("bias") else product
    op.compute(formula, turned=op.transposed("weight"))


def _attention(op: SourceOperation) -> None:
    query, key, value = (op.tensor(name) for name in ("query", "key", "value"))
    masks = op.tensors("attn_mask")
    chooses = bool(masks) and op.value("attn_mask").dtype == np.bool_
    scale = op.shape("query")[-1] ** -0.5
    rank = len(op.shape("key"))
    attention(op, (query, key, value), rank, scale, *masks, chooses=chooses)


ARITHMETIC: dict[str, Translation] = {
    **{kind: f"{operator}(x)" for kind, operator in _UNARY.items()},
    **{kind: f"{operator}(x, y)" for kind, operator in _BINARY.items()},
    **{
        kind: shared.reduction(f"Reduce{name}", "x", "axes", "keep_dims")
        for kind, name in _REDUCTIONS.items()
    },
    "cast": shared.casted("x"),
    "clip": "Clip(x, alpha, beta)",
    "cumsum": shared.cumulative_sum("x", "axis"),
    "einsum": "Einsum(values, equation=equation)",
    "elu": "Elu(x, alpha=alpha)",
    "exp2": "Pow(2.0, x)",
    "floor_div": _floor_div,
    "gelu": _gelu,
    "inverse": _of_shifted("Reciprocal({})"),
    "leaky_relu": "LeakyRelu(x, alpha=alpha)",
    "linear": _linear,
    "linear_activation": "Add(Mul(x, alpha), beta)",
    "log": _of_shifted("Log({})"),
    "matmul": shared.matmul("x", "y", ("transpose_x", "transpose_y")),
    "mod": shared.floor_mod("x", "y"),
    "not_equal": "Not(Equal(x, y))",
    "prelu": _prelu,
    "reduce_argmax": "ArgMax(x, axis=axis, keepdims=keep_dims)",
    "reduce_argmin": "ArgMin(x, axis=axis, keepdims=keep_dims)",
    "relu6": "Clip(x, 0.0, 6.0)",
    "rsqrt": _of_shifted("Reciprocal(Sqrt({}))"),
    "scaled_dot_product_attention": _attention,
    "select": "Where(cond, a, b)",
    "sigmoid_hard": "HardSigmoid(x, alpha=alpha, beta=beta)",
    "silu": "Mul(x, Sigmoid(x))",
    "softmax": "Softmax(x, axis=axis)",
    "softplus_parametric": _softplus_parametric,
    "square": "Mul(x, x)",
    "threshold": "Max(x, alpha)",
    "thresholded_relu": "ThresholdedRelu(x, alpha=alpha)",
}
