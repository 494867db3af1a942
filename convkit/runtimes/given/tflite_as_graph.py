"""TFLite's float operators as ONNX nodes. Images are NHWC there, and NCHW in ONNX."""

import dataclasses

from convkit.worker.cause.other_formats import shared_translations as shared
from convkit.worker.cause.other_formats.source_operation import (
    NotTranslatedError,
    SourceOperation,
    Translation,
)
from convkit.worker.graph.operators.composed_operators import stacked, strided_slice
from convkit.worker.graph.operators.formulas import Attributes

# schema.fbs: ActivationFunctionType, Padding.
_ACTIVATIONS = {1: "Relu(x)", 3: "Clip(x, 0.0, 6.0)", 4: "Tanh(x)"}
_PADDING = {0: "SAME_UPPER", 1: "VALID"}
_TO_FRONT, _TO_BACK = [0, 3, 1, 2], [0, 2, 3, 1]

_UNARY = {
    **{
        name.upper(): name
        for name in (
            *("Tanh", "Exp", "Log", "Sqrt", "Abs", "Neg", "Sin", "Cos", "Elu", "Floor", "Ceil"),
            *("Relu", "Round", "Sign"),
        )
    },
    "LOGISTIC": "Sigmoid",
    "HARD_SWISH": "HardSwish",
    "LOGICAL_NOT": "Not",
}
_BINARY = {
    **{
        name.upper(): name
        for name in ("Add", "Sub", "Mul", "Div", "Pow", "Less", "Greater", "Equal")
    },
    "MAXIMUM": "Max",
    "MINIMUM": "Min",
    "LESS_EQUAL": "LessOrEqual",
    "GREATER_EQUAL": "GreaterOrEqual",
    "LOGICAL_AND": "And",
    "LOGICAL_OR": "Or",
}
_REDUCTIONS = {
    "MEAN": "Mean",
    "SUM": "Sum",
    **{f"REDUCE_{name.upper()}": name for name in ("Max", "Min", "Prod")},
}


def _activated(translation: Translation) -> Translation:
    """Apply the activation that an operation may be fused with."""

    def translate(op: SourceOperation) -> None:
        kind = op.integer("fusedActivationFunction", 0)
        if not kind:
            op.translate(translation)
            return
        if kind not in _ACTIVATIONS:
            raise NotTranslatedError(f"activation {kind}")
        before = dataclasses.replace(op, out=op.inner("computed"))
        before.translate(translation)
        op.compute(_ACTIVATIONS[kind], x=before.out)

    return translate


def _of_image(op: SourceOperation, operator: str, weights: list[str], keys: Attributes) -> None:
    """Apply an operator to an image, whose channels come last."""
    strides = [op.integer("strideH", 0), op.integer("strideW", 0)]
    pads = _PADDING[op.integer("padding", 0)]
    image = op.write("Transpose", op.tensor("x0"), inner="front", perm=_TO_FRONT)
    made = op.write(
        operator, image, *weights, inner="product", strides=strides, auto_pad=pads, **keys
    )
    op.write("Transpose", made, perm=_TO_BACK)


def _convolution(*, depthwise: bool) -> Translation:
    def translate(op: SourceOperation) -> None:
        # [1, height, width, channels] depthwise, otherwise [out, height, width, in].
        weight = _turned(op, [3, 0, 1, 2] if depthwise else [0, 3, 1, 2])
        channels = op.shape("x0")[3]
        dilations = [op.integer("dilationHFactor", 0), op.integer("dilationWFactor", 0)]
        group = channels if depthwise else channels // op.shape("x1")[3]
        keys: Attributes = {"dilations": dilations, "group": group}
        _of_image(op, "Conv", [weight, *op.tensors("x2")], keys)

    return translate


def _turned(op: SourceOperation, perm: list[int]) -> str:
    if op.tensor("x1") not in op.constants:
        raise NotTranslatedError("a weight that is computed")
    return op.transposed("x1", perm)


def _pool(operator: str) -> Translation:
    def translate(op: SourceOperation) -> None:
        kernel = [op.integer("filterHeight", 0), op.integer("filterWidth", 0)]
        _of_image(op, operator, [], {"kernel_shape": kernel})

    return translate


def _fully_connected(op: SourceOperation) -> None:
    x, width = op.tensor("x0"), op.shape("x1")[1]
    if op.value("x0").ndim != 2:
        x = op.write("Reshape", x, [-1, width], inner="rows of x")
    product = "Add(MatMul(x, turned), x2)" if op.has("x2") else "MatMul(x, turned)"
    shape = op.result().shape
    op.compute(f"Reshape({product}, whole)", x=x, turned=_turned(op, [1, 0]), whole=shape)


def _softmax(op: SourceOperation) -> None:
    if op.number("beta", 1.0) != 1.0:
        raise NotTranslatedError("beta")
    op.compute("Softmax(x0, axis=-1)")


def _pad(op: SourceOperation) -> None:
    before, after = op.value("x1").T.tolist()
    op.write("Pad", op.tensor("x0"), [*before, *after], *op.tensors("x2"))


def _mirror_pad(op: SourceOperation) -> None:
    before, after = op.value("x1").T.tolist()
    op.write("Pad", op.tensor("x0"), [*before, *after], mode="reflect")


def _strided_slice(op: SourceOperation) -> None:
    cuts = op.integers("x1"), op.integers("x2"), op.integers("x3")
    masks = {
        key: {axis for axis in range(len(cuts[0])) if op.integer(name, 0) >> axis & 1}
        for key, name in {
            "from_start": "beginMask",
            "to_end": "endMask",
            "dropped": "shrinkAxisMask",
        }.items()
    }
    strided_slice(op, op.tensor("x0"), op.shape("x0"), cuts, **masks)


def _all(op: SourceOperation) -> list[str]:
    return op.tensors(*op.step.arguments)


TRANSLATIONS: dict[str, Translation] = {
    **{kind: f"{operator}(x0)" for kind, operator in _UNARY.items()},
    **{kind: _activated(f"{operator}(x0, x1)") for kind, operator in _BINARY.items()},
    **{
        kind: shared.reduction(f"Reduce{name}", "x0", "x1", "keepDims")
        for kind, name in _REDUCTIONS.items()
    },
    "AVERAGE_POOL_2D": _activated(_pool("AveragePool")),
    "BATCH_MATMUL": shared.matmul("x0", "x1", ("adjX", "adjY")),
    "CAST": shared.casted("x0"),
    "CONCATENATION": _activated(
        lambda op: op.write("Concat", *_all(op), axis=op.integer("axis", 0))
    ),
    "CONV_2D": _activated(_convolution(depthwise=False)),
    "DEPTHWISE_CONV_2D": _activated(_convolution(depthwise=True)),
    "EXPAND_DIMS": shared.reshaped("x0"),
    "FULLY_CONNECTED": _activated(_fully_connected),
    "GATHER": shared.unless("batchDims", "Gather(x0, x1, axis=axis)"),
    "GELU": lambda op: op.write(
        "Gelu", op.tensor("x0"), approximate="tanh" if op.flag("approximate") else "none"
    ),
    "LEAKY_RELU": "LeakyRelu(x0, alpha=alpha)",
    "MAX_POOL_2D": _activated(_pool("MaxPool")),
    "MIRROR_PAD": shared.unless("mode", _mirror_pad),  # symmetric
    "PACK": lambda op: stacked(op, _all(op), op.integer("axis", 0)),
    "PAD": _pad,
    "PADV2": _pad,
    "RELU6": "Clip(x0, 0.0, 6.0)",
    "RESHAPE": shared.reshaped("x0"),
    "RSQRT": "Reciprocal(Sqrt(x0))",
    "SELECT_V2": "Where(x0, x1, x2)",
    "SOFTMAX": _softmax,
    "SQUARE": "Mul(x0, x0)",
    "SQUEEZE": shared.reshaped("x0"),
    "STRIDED_SLICE": shared.unless("ellipsisMask", shared.unless("newAxisMask", _strided_slice)),
    "TRANSPOSE": "Transpose(x0, perm=x1)",
}
