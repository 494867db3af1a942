"""Convolutions as products of matrices: every window of the input becomes a column."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.rewriting.node_writer import NodeWriter

_DOUBLE, _INT64 = ir.DataType.DOUBLE, ir.DataType.INT64
_TO_THE_END = np.iinfo(np.int64).max

Widen = Callable[[ir.Value], ir.Value]


def write_convolution(node: ir.Node, writer: NodeWriter, widen: Widen) -> ir.Value | None:
    """Return a Conv's result in float64; None if its sizes are not known well enough."""
    x, weight, bias = (*node.inputs, None)[:3]
    kernel = kernel_shape(node, weight)
    if x is None or weight is None or kernel is None:
        return None
    window = Window.of(node, kernel)
    if window is None:
        return None
    groups = node.attributes.get_int("group", 1)
    columns, sizes = window.columns(writer, x, groups)
    rows = weight_rows(writer, widen(weight), weight.dtype or _DOUBLE, kernel, groups)
    products = writer.op("MatMul", [rows, widen(columns)], _DOUBLE)
    return finish(writer, products, sizes, None if bias is None else widen(bias), len(kernel))


def write_transposed(node: ir.Node, writer: NodeWriter, widen: Widen) -> ir.Value | None:
    """Return a ConvTranspose's result in float64: a convolution, with the kernel turned around, of
    the input with zeros in between. None if its attributes do not say how.
    """
    x, weight, bias = (*node.inputs, None)[:3]
    kernel = kernel_shape(node, weight)
    attributes = node.attributes
    if (
        x is None
        or weight is None
        or weight.shape is None
        or not all(isinstance(size, int) for size in weight.shape)
        or kernel is None
        or "output_shape" in attributes
        or attributes.get_string("auto_pad", "NOTSET") not in ("NOTSET", "VALID")
    ):
        return None
    rank = len(kernel)
    strides = attributes.get_ints("strides", [1] * rank)
    dilations = attributes.get_ints("dilations", [1] * rank)
    pads = attributes.get_ints("pads", [0] * 2 * rank)
    extra = attributes.get_ints("output_padding", [0] * rank)
    groups = attributes.get_int("group", 1)
    spread = _with_zeros_between(writer, x, strides)
    reach = [dilation * (size - 1) for dilation, size in zip(dilations, kernel, strict=True)]
    begins = [reach[axis] - pads[axis] for axis in range(rank)]
    ends = [
        reach[axis] - pads[rank + axis] + extra[axis] - (strides[axis] - 1) for axis in range(rank)
    ]
    window = Window(tuple(kernel), (1,) * rank, tuple(dilations), (*begins, *ends))
    columns, sizes = window.columns(writer, spread, groups)
    # [C, O/g, k...] -> [g, C/g, O/g, k...] -> [g, O/g, C/g, k...] -> [O, C/g, k...], turned around.
    inner, outer = weight.shape[0], weight.shape[1]
    assert isinstance(inner, int)
    assert isinstance(outer, int)
    floats = weight.dtype or _DOUBLE
    split = writer.op(
        "Reshape", [weight, writer.integers(groups, inner // groups, outer, *kernel)], floats
    )
    order = [0, 2, 1, *range(3, 3 + rank)]
    turned = writer.op("Transpose", [split], floats, perm=order)
    joined = writer.op(
        "Reshape", [turned, writer.integers(groups * outer, inner // groups, *kernel)], floats
    )
    axes = list(range(2, 2 + rank))
    flipped = writer.op(
        "Slice",
        [
            joined,
            writer.integers(*[-1] * rank),
            writer.integers(*[np.iinfo(np.int64).min] * rank),
            writer.integers(*axes),
            writer.integers(*[-1] * rank),
        ],
        floats,
    )
    flipped.shape = ir.Shape([groups * outer, inner // groups, *kernel])
    rows = weight_rows(writer, widen(flipped), floats, kernel, groups)
    products = writer.op("MatMul", [rows, widen(columns)], _DOUBLE)
    return finish(writer, products, sizes, None if bias is None else widen(bias), rank)


def kernel_shape(node: ir.Node, weight: ir.Value | None) -> list[int] | None:
    """Return a kernel's sizes; None if they are unknown."""
    if "kernel_shape" in node.attributes:
        return list(node.attributes["kernel_shape"].as_ints())
    if weight is None or weight.shape is None:
        return None
    sizes = list(weight.shape)[2:]
    return [int(size) for size in sizes] if all(isinstance(s, int) for s in sizes) else None


class Window:
    """The windows of a convolution: kernel, strides and dilations per axis, pads as in ONNX (all
    begins, then all ends; negative ones crop).
    """

    def __init__(
        self,
        kernel: tuple[int, ...],
        strides: tuple[int, ...],
        dilations: tuple[int, ...],
        pads: tuple[int, ...],
    ) -> None:
        self.kernel = kernel
        self.strides = strides
        self.dilations = dilations
        self.pads = pads

    @classmethod
    def of(cls, node: ir.Node, kernel: Sequence[int]) -> "Window | None":
        """Return a Conv's windows; None if its padding depends on sizes that are unknown."""
        rank = len(kernel)
        attributes = node.attributes
        strides = tuple(attributes.get_ints("strides", [1] * rank))
        dilations = tuple(attributes.get_ints("dilations", [1] * rank))
        pads = tuple(attributes.get_ints("pads", [0] * 2 * rank))
        automatic = attributes.get_string("auto_pad", "NOTSET")
        if automatic == "VALID":
            pads = (0,) * 2 * rank
        elif automatic.startswith("SAME"):
            found = _same_pads(node, kernel, strides, dilations, at_end=automatic == "SAME_UPPER")
            if found is None:
                return None
            pads = found
        return cls(tuple(kernel), strides, dilations, pads)

    def columns(
        self, writer: NodeWriter, x: ir.Value, groups: int, fill: ir.Value | None = None
    ) -> tuple[ir.Value, ir.Value]:
        """Return the windows of `x` [N, C, ...] as columns [N, groups, kernel * C / groups,
        windows], by place in the kernel, then channel; and the shape [N, C, windows per axis...].
        `groups` is left out if it is 1. `fill` is the value of padding, 0 by default.
        """
        kind = x.dtype or _DOUBLE
        rank = len(self.kernel)
        if any(self.pads):
            none = [0, 0]
            pads = writer.integers(*none, *self.pads[:rank], *none, *self.pads[rank:])
            x = writer.op("Pad", [x, pads, *([fill] if fill is not None else [])], kind)
        axes = writer.integers(*range(2, 2 + rank))
        steps = writer.integers(*self.strides)
        pieces: list[ir.Value] = []
        for place in np.ndindex(self.kernel):
            begins = [at * dilation for at, dilation in zip(place, self.dilations, strict=True)]
            lefts = [
                (size - 1 - at) * dilation
                for at, size, dilation in zip(place, self.kernel, self.dilations, strict=True)
            ]
            ends = [-left if left else _TO_THE_END for left in lefts]
            limits = [writer.integers(*begins), writer.integers(*ends), axes, steps]
            pieces.append(writer.op("Slice", [x, *limits], kind))
        sizes = writer.op("Shape", [pieces[0]], _INT64)
        new_axis = writer.integers(1)
        rows = [writer.op("Unsqueeze", [piece, new_axis], kind) for piece in pieces]
        stacked = rows[0] if len(rows) == 1 else writer.op("Concat", rows, kind, axis=1)
        # Now [N, kernel, C, windows].
        count = len(pieces)
        if groups == 1:
            # 0 keeps a size; the sizes after it are joined.
            merged = writer.op("Reshape", [stacked, self._merged(writer, sizes, count)], kind)
            return merged, sizes
        split = writer.op(
            "Reshape", [stacked, self._split(writer, sizes, count, groups)], kind
        )  # [N, kernel, g, C/g, windows]
        moved = writer.op("Transpose", [split], kind, perm=[0, 2, 1, 3, 4])
        per_group = self._per_group(writer, sizes, count, groups)
        return writer.op("Reshape", [moved, per_group], kind), sizes

    def _channels(self, writer: NodeWriter, sizes: ir.Value) -> ir.Value:
        limits = [writer.integers(1), writer.integers(2)]
        return writer.op("Slice", [sizes, *limits], _INT64)

    def _merged(self, writer: NodeWriter, sizes: ir.Value, count: int) -> ir.Value:
        channels = self._channels(writer, sizes)
        rows = writer.op("Mul", [channels, writer.integers(count)], _INT64)
        parts = [writer.integers(0), rows, writer.integers(-1)]
        return writer.op("Concat", parts, _INT64, axis=0)

    def _split(self, writer: NodeWriter, sizes: ir.Value, count: int, groups: int) -> ir.Value:
        each = writer.op("Div", [self._channels(writer, sizes), writer.integers(groups)], _INT64)
        parts = [writer.integers(0, count, groups), each, writer.integers(-1)]
        return writer.op("Concat", parts, _INT64, axis=0)

    def _per_group(self, writer: NodeWriter, sizes: ir.Value, count: int, groups: int) -> ir.Value:
        each = writer.op("Div", [self._channels(writer, sizes), writer.integers(groups)], _INT64)
        rows = writer.op("Mul", [each, writer.integers(count)], _INT64)
        parts = [writer.integers(0, groups), rows, writer.integers(-1)]
        return writer.op("Concat", parts, _INT64, axis=0)


def weight_rows(
    writer: NodeWriter, weight: ir.Value, kind: ir.DataType, kernel: Sequence[int], groups: int
) -> ir.Value:
    """Return a kernel [O, C/g, k...] as rows [g, O/g, k * C/g], by place, then channel; `groups` is
    left out if it is 1.
    """
    kind = weight.dtype or kind
    count = int(np.prod(kernel))
    flat = writer.op("Reshape", [weight, writer.integers(0, 0, count)], kind)
    moved = writer.op("Transpose", [flat], kind, perm=[0, 2, 1])
    if groups == 1:
        return writer.op("Reshape", [moved, writer.integers(0, -1)], kind)
    rows = writer.op("Flatten", [moved], kind, axis=1)
    sizes = writer.op("Shape", [rows], _INT64)
    width = writer.op("Slice", [sizes, writer.integers(1), writer.integers(2)], _INT64)
    shape = writer.op("Concat", [writer.integers(groups, -1), width], _INT64, axis=0)
    return writer.op("Reshape", [rows, shape], kind)


def finish(
    writer: NodeWriter, products: ir.Value, sizes: ir.Value, bias: ir.Value | None, rank: int
) -> ir.Value:
    """Return products [N, (g,) O/g, windows] as [N, O, windows per axis...], with the bias."""
    kind = products.dtype or _DOUBLE
    count = writer.op("Slice", [sizes, writer.integers(0), writer.integers(1)], _INT64)
    spatial = writer.op("Slice", [sizes, writer.integers(2), writer.integers(2 + rank)], _INT64)
    shape = writer.op("Concat", [count, writer.integers(-1), spatial], _INT64, axis=0)
    result = writer.op("Reshape", [products, shape], kind)
    if bias is None:
        return result
    column = writer.op("Reshape", [bias, writer.integers(-1, *[1] * rank)], kind)
    return writer.op("Add", [result, column], kind)


def _with_zeros_between(writer: NodeWriter, x: ir.Value, strides: Sequence[int]) -> ir.Value:
    """Put stride - 1 zeros behind every element of each spatial axis."""
    kind = x.dtype or _DOUBLE
    rank = len(strides)
    if all(stride == 1 for stride in strides):
        return x
    sizes = writer.op("Shape", [x], _INT64)
    axes = [3 + 2 * axis for axis in range(rank)]
    split = writer.op("Unsqueeze", [x, writer.integers(*axes)], kind)
    begins = [0] * (2 + 2 * rank)
    ends = [0, 0, *(each for stride in strides for each in (0, stride - 1))]
    padded = writer.op("Pad", [split, writer.integers(*begins, *ends)], kind)
    grown = writer.op("Mul", [sizes, writer.integers(1, 1, *strides)], _INT64)
    return writer.op("Reshape", [padded, grown], kind)


def _same_pads(
    node: ir.Node,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    *,
    at_end: bool,
) -> tuple[int, ...] | None:
    """Return the pads of SAME_UPPER (`at_end`: the odd one) or SAME_LOWER; None if unknown."""
    x = node.inputs[0]
    begins, ends = [], []
    for axis, (size, stride, dilation) in enumerate(zip(kernel, strides, dilations, strict=True)):
        reach = (size - 1) * dilation
        if stride == 1:
            total = reach
        else:
            length = x.shape[2 + axis] if x is not None and x.shape is not None else None
            if not isinstance(length, int):
                return None
            total = max((-(-length // stride) - 1) * stride + reach + 1 - length, 0)
        small, large = total // 2, total - total // 2
        begins.append(small if at_end else large)
        ends.append(large if at_end else small)
    return (*begins, *ends)
