"""Elementwise operations, activations, reductions and products as ONNX nodes."""

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
    "abs": "Abs",
    "acos": "Acos",
    "asin": "Asin",
    "atan": "Atan",
    "atanh": "Atanh",
    "ceil": "Ceil",
    "cos": "Cos",
    "cosh": "Cosh",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "logical_not": "Not",
    "relu": "Relu",
    "round": "Round",
    "sigmoid": "Sigmoid",
    "sign": "Sign",
    "sin": "Sin",
    "sinh": "Sinh",
    "softplus": "Softplus",
    "tan": "Tan",
    "softsign": "Softsign",
    "sqrt": "Sqrt",
    "tanh": "Tanh",
    "identity": "Identity",
}
_BINARY = {
    "add": "Add",
    "sub": "Sub",
    "mul": "Mul",
    "real_div": "Div",
    "pow": "Pow",
    "maximum": "Max",
    "minimum": "Min",
    "equal": "Equal",
    "less": "Less",
    "less_equal": "LessOrEqual",
    "greater": "Greater",
    "greater_equal": "GreaterOrEqual",
    "logical_and": "And",
    "logical_or": "Or",
    "logical_xor": "Xor",
}
_REDUCTIONS = {
    "reduce_mean": "ReduceMean",
    "reduce_sum": "ReduceSum",
    "reduce_max": "ReduceMax",
    "reduce_min": "ReduceMin",
    "reduce_prod": "ReduceProd",
    "reduce_l1_norm": "ReduceL1",
    "reduce_l2_norm": "ReduceL2",
    "reduce_sum_square": "ReduceSumSquare",
    "reduce_log_sum": "ReduceLogSum",
    "reduce_log_sum_exp": "ReduceLogSumExp",
}


def _reduction(operator: str) -> Translation:
    def translate(op: SourceOperation) -> None:
        rank = op.value("x").ndim
        axes = op.integers("axes") if op.has("axes") else list(range(rank))
        whole = op.whole("axes", sorted({axis % rank for axis in axes}))
        op.write(
            operator, op.tensor("x"), whole, attributes={"keepdims": int(op.flag("keep_dims"))}
        )

    return translate


def _index(operator: str) -> Translation:
    def translate(op: SourceOperation) -> None:
        keys = {"axis": op.integer("axis"), "keepdims": int(op.flag("keep_dims"))}
        op.write(operator, op.tensor("x"), attributes=keys)

    return translate


def _floor_div(op: SourceOperation) -> None:
    if op.value("x").dtype.kind != "f":
        raise NotTranslatedError("ONNX divides integers toward zero")
    op.write("Floor", op.write("Div", op.tensor("x"), op.tensor("y"), to=op.inner("divided")))


def _shifted(op: SourceOperation) -> str:
    """Return `x + epsilon`."""
    if not op.has("epsilon") or not op.number("epsilon"):
        return op.tensor("x")
    return op.write("Add", op.tensor("x"), op.tensor("epsilon"), to=op.inner("shifted"))


def _rsqrt(op: SourceOperation) -> None:
    op.write("Reciprocal", op.write("Sqrt", _shifted(op), to=op.inner("root")))


def _clip(op: SourceOperation) -> None:
    op.write("Clip", op.tensor("x"), op.tensor("alpha"), op.tensor("beta"))


def _relu6(op: SourceOperation) -> None:
    bounds = (op.constant(f"{each}", np.asarray(each, np.float32)) for each in (0.0, 6.0))
    op.write("Clip", op.tensor("x"), *bounds)


def _exp2(op: SourceOperation) -> None:
    op.write("Pow", op.constant("two", np.asarray(2, np.float32)), op.tensor("x"))


def _silu(op: SourceOperation) -> None:
    op.write("Mul", op.tensor("x"), op.write("Sigmoid", op.tensor("x"), to=op.inner("sigmoid")))


def _gelu(op: SourceOperation) -> None:
    mode = op.text("mode", "EXACT")
    if mode == "SIGMOID_APPROXIMATION":
        factor = op.constant("factor", np.asarray(1.702, np.float32))
        scaled = op.write("Mul", op.tensor("x"), factor, to=op.inner("scaled"))
        op.write("Mul", op.tensor("x"), op.write("Sigmoid", scaled, to=op.inner("gate")))
        return
    if mode not in ("EXACT", "TANH_APPROXIMATION"):
        raise NotTranslatedError(mode)
    approximation = "none" if mode == "EXACT" else "tanh"
    op.write("Gelu", op.tensor("x"), attributes={"approximate": approximation})


def _with_numbers(operator: str, *names: str) -> Translation:
    def translate(op: SourceOperation) -> None:
        op.write(operator, op.tensor("x"), attributes={name: op.number(name) for name in names})

    return translate


def _prelu(op: SourceOperation) -> None:
    alpha = op.value("alpha").reshape(-1, *[1] * (op.value("x").ndim - 2))
    op.write("PRelu", op.tensor("x"), op.constant("alpha", alpha))


def _softplus_parametric(op: SourceOperation) -> None:
    shape = [-1, *[1] * (op.value("x").ndim - 2)]
    alpha, beta = (op.constant(each, op.value(each).reshape(shape)) for each in ("alpha", "beta"))
    scaled = op.write("Mul", op.tensor("x"), beta, to=op.inner("scaled"))
    op.write("Mul", op.write("Softplus", scaled, to=op.inner("softplus")), alpha)


def _linear_activation(op: SourceOperation) -> None:
    scaled = op.write("Mul", op.tensor("x"), op.tensor("alpha"), to=op.inner("scaled"))
    op.write("Add", scaled, op.tensor("beta"))


def _softmax(op: SourceOperation) -> None:
    op.write("Softmax", op.tensor("x"), attributes={"axis": op.integer("axis", -1)})


def _select(op: SourceOperation) -> None:
    op.write("Where", op.tensor("cond"), op.tensor("a"), op.tensor("b"))


def _cast(op: SourceOperation) -> None:
    # float16 is written as float32: its rounding is the precision's, not the program's.
    kind = helper.np_dtype_to_tensor_dtype(op.result().dtype)
    op.write("Cast", op.tensor("x"), attributes={"to": kind})


def _transposed(op: SourceOperation, name: str) -> str:
    rank = op.value(name).ndim
    if not op.flag(f"transpose_{name}") or rank < 2:
        return op.tensor(name)
    perm = [*range(rank - 2), rank - 1, rank - 2]
    return op.write(
        "Transpose", op.tensor(name), to=op.inner(f"turned {name}"), attributes={"perm": perm}
    )


def _matmul(op: SourceOperation) -> None:
    op.write("MatMul", _transposed(op, "x"), _transposed(op, "y"))


def _linear(op: SourceOperation) -> None:
    weight = op.tensor("weight")
    if weight not in op.writer.constants:
        raise NotTranslatedError("a weight that is computed")
    # Under the weight's own name, by which the original's is found.
    turned = f"{weight}{TURNED}"
    op.writer.constants[turned] = np.ascontiguousarray(op.writer.constants[weight].T)
    product = op.inner("product") if op.has("bias") else op.out
    op.write("MatMul", op.tensor("x"), turned, to=product)
    if op.has("bias"):
        op.write("Add", product, op.tensor("bias"))


def _einsum(op: SourceOperation) -> None:
    op.write("Einsum", *op.tensors("values"), attributes={"equation": op.text("equation", "")})


def _attention(op: SourceOperation) -> None:
    key, width = op.value("key"), op.value("query").shape[-1]
    perm = [*range(key.ndim - 2), key.ndim - 1, key.ndim - 2]
    turned = op.write(
        "Transpose", op.tensor("key"), to=op.inner("turned key"), attributes={"perm": perm}
    )
    scores = op.write("MatMul", op.tensor("query"), turned, to=op.inner("products"))
    scale = op.constant("scale", np.asarray(width**-0.5, np.float32))
    scores = op.write("Mul", scores, scale, to=op.inner("scores"))
    if op.has("attn_mask"):
        mask = op.tensor("attn_mask")
        if op.value("attn_mask").dtype == np.bool_:
            low = op.constant("low", np.asarray(-np.inf, np.float32))
            scores = op.write("Where", mask, scores, low, to=op.inner("masked"))
        else:
            scores = op.write("Add", scores, mask, to=op.inner("masked"))
    weights = op.write("Softmax", scores, to=op.inner("weights"), attributes={"axis": -1})
    op.write("MatMul", weights, op.tensor("value"))


def _cumsum(op: SourceOperation) -> None:
    axis = op.constant("axis", np.asarray(op.integer("axis", 0), np.int64))
    flags = {name: int(op.flag(name)) for name in ("exclusive", "reverse")}
    op.write("CumSum", op.tensor("x"), axis, attributes=flags)


ARITHMETIC: dict[str, Translation] = {
    **{kind: common_operations.applied(operator, "x") for kind, operator in _UNARY.items()},
    **{kind: common_operations.applied(operator, "x", "y") for kind, operator in _BINARY.items()},
    **{kind: _reduction(operator) for kind, operator in _REDUCTIONS.items()},
    "cast": _cast,
    "clip": _clip,
    "cumsum": _cumsum,
    "einsum": _einsum,
    "elu": _with_numbers("Elu", "alpha"),
    "exp2": _exp2,
    "floor_div": _floor_div,
    "gelu": _gelu,
    "inverse": lambda op: op.write("Reciprocal", _shifted(op)),
    "leaky_relu": _with_numbers("LeakyRelu", "alpha"),
    "linear": _linear,
    "linear_activation": _linear_activation,
    "log": lambda op: op.write("Log", _shifted(op)),
    "matmul": _matmul,
    "mod": common_operations.floor_mod("x", "y"),
    "not_equal": common_operations.not_equal("x", "y"),
    "prelu": _prelu,
    "reduce_argmax": _index("ArgMax"),
    "reduce_argmin": _index("ArgMin"),
    "relu6": _relu6,
    "rsqrt": _rsqrt,
    "scaled_dot_product_attention": _attention,
    "select": _select,
    "sigmoid_hard": _with_numbers("HardSigmoid", "alpha", "beta"),
    "silu": _silu,
    "softmax": _softmax,
    "softplus_parametric": _softplus_parametric,
    "square": lambda op: op.write("Mul", op.tensor("x"), op.tensor("x")),
    "threshold": common_operations.applied("Max", "x", "alpha"),
    "thresholded_relu": _with_numbers("ThresholdedRelu", "alpha"),
}
