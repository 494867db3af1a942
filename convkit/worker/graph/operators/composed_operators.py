"""Operators that other formats have and ONNX writes in several nodes."""

from collections.abc import Collection, Sequence

import numpy as np

from convkit.worker.graph.operators.formulas import Attributes
from convkit.worker.graph.operators.node_builder import NodeBuilder, Operand, last_two_swapped

# The end of any axis, as ONNX's Slice has it.
LAST = np.iinfo(np.int64).max
# Formulas: torch.nn.functional's reference.
GELU = "Mul(Mul(x, Add(Erf(Div(x, 1.4142135623730951)), 1.0)), 0.5)"
GELU_TANH = (
    "Mul(Mul(x, Add(Tanh(Mul(Add(x, Mul(Mul(Mul(x, x), x), 0.044715)), 0.7978845608028654)), 1.0)),"
    " 0.5)"
)
GELU_SIGMOID = "Mul(x, Sigmoid(Mul(x, 1.702)))"


def strided_slice(
    builder: NodeBuilder,
    x: str,
    shape: Sequence[int],
    cuts: tuple[Sequence[int], Sequence[int], Sequence[int]],
    *,
    from_start: Collection[int] = (),
    to_end: Collection[int] = (),
    dropped: Collection[int] = (),
) -> None:
    """Cut by begins, ends and steps; the axes `from_start` and `to_end` are cut at one side only,
    those `dropped` have one element, and go.
    """
    parts: dict[int, tuple[int, int, int]] = {}
    for axis, (begin, end, step) in enumerate(zip(*cuts, strict=True)):
        first, last = (0, LAST) if step > 0 else (LAST, -LAST)
        part = (first if axis in from_start else begin, last if axis in to_end else end, step)
        if axis in dropped:
            part = (begin % shape[axis], begin % shape[axis] + 1, 1)
        # Only the axes that are cut: a change of any other would be no candidate.
        if part != (0, LAST, 1):
            parts[axis] = part
    begins, ends, steps = zip(*(parts or {0: (0, LAST, 1)}).values(), strict=True)
    sliced = builder.write(
        "Slice", x, begins, ends, list(parts or [0]), steps, inner="cut" if dropped else ""
    )
    if dropped:
        builder.write("Squeeze", sliced, builder.constant("dropped", sorted(dropped)))


def attention(
    builder: NodeBuilder,
    tensors: tuple[str, str, str],
    rank: int,
    scale: Operand,
    mask: Operand = "",
    *,
    chooses: bool = False,
) -> None:
    """Attend with a query to keys and values; a mask is added, or `chooses` what is attended to."""
    query, key, value = tensors
    turned = builder.write("Transpose", key, inner="turned key", perm=last_two_swapped(rank))
    products = builder.write("MatMul", query, turned, inner="products")
    scale = scale if isinstance(scale, str) else builder.constant("scale", scale)
    scores = builder.write("Mul", products, scale, inner="scores")
    if chooses:
        low = builder.constant("low", -np.inf)
        scores = builder.write("Where", mask, scores, low, inner="masked")
    elif not isinstance(mask, str) or mask:
        scores = builder.write("Add", scores, mask, inner="masked")
    weights = builder.write("Softmax", scores, inner="weights", axis=-1)
    builder.write("MatMul", weights, value)


def layer_normalization(
    builder: NodeBuilder,
    x: str,
    shape: Sequence[int],
    axes: Sequence[int],
    epsilon: float,
    factors: Sequence[Operand] = (),
) -> None:
    """Normalize over axes, with a gain and a shift if given. ONNX normalizes over the last axes:
    others are moved there, and back.
    """
    rank = len(shape)
    own = sorted(axis % rank for axis in axes)
    order = [*(axis for axis in range(rank) if axis not in own), *own]
    if not factors:
        factors = [builder.constant("gain", np.ones([shape[axis] for axis in own], np.float32))]
    moves = order != sorted(order)
    if moves:
        x = builder.write("Transpose", x, inner="moved", perm=order)
    normal = builder.write(
        "LayerNormalization", x, *factors, inner="normalized" if moves else "",
        axis=-len(own), epsilon=epsilon,
    )  # fmt: skip
    if moves:
        builder.write("Transpose", normal, perm=[order.index(axis) for axis in range(rank)])


def transposed_convolution(
    builder: NodeBuilder,
    inputs: Sequence[str],
    sizes: tuple[Sequence[int], Sequence[int], Sequence[int]],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
    group: int,
) -> None:
    """Write a transposed convolution; `sizes` are those of what it reads, of the kernel and of its
    result, which say how much the result is padded.
    """
    spans = zip(*sizes, strides, dilations, strict=True)
    rank = len(strides)
    made = [size - (n - 1) * step - (width - 1) * gap - 1 for n, width, size, step, gap in spans]
    builder.write(
        "ConvTranspose",
        *inputs,
        strides=strides,
        dilations=dilations,
        group=group,
        pads=pads,
        output_padding=[more + pads[axis] + pads[axis + rank] for axis, more in enumerate(made)],
    )


def resized(
    builder: NodeBuilder, x: str, sizes: Sequence[int], grid: str, keys: Attributes
) -> None:
    """Resize to sizes, with the coordinates of a grid."""
    builder.write("Resize", x, "", "", sizes, coordinate_transformation_mode=grid, **keys)


def stacked(builder: NodeBuilder, parts: Sequence[str], axis: int) -> None:
    """Join tensors along a new axis."""
    axes = builder.constant("axes", [axis])
    wide = [
        builder.write("Unsqueeze", part, axes, inner=f"part {place}")
        for place, part in enumerate(parts)
    ]
    builder.write("Concat", *wide, axis=axis)
