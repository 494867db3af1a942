"""Convolutions as products of matrices: every window of the input becomes a column."""

from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.rewriting.node_writer import NodeWriter

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
    rows = weight_rows(writer, widen(weight), kernel, groups)
    products = writer.op("MatMul", [rows, widen(columns)])
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
    turned = f"Transpose(Reshape(w, apart), perm={[0, 2, 1, *range(3, 3 + rank)]})"
    flipped = writer.compute(
        f"Slice(Reshape({turned}, whole), back, first, axes, back)",
        w=weight,
        apart=[groups, inner // groups, outer, *kernel],
        whole=[groups * outer, inner // groups, *kernel],
        back=[-1] * rank,
        first=[np.iinfo(np.int64).min] * rank,
        axes=list(range(2, 2 + rank)),
    )
    flipped.shape = ir.Shape([groups * outer, inner // groups, *kernel])
    rows = weight_rows(writer, widen(flipped), kernel, groups)
    products = writer.op("MatMul", [rows, widen(columns)])
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
        rank = len(self.kernel)
        if any(self.pads):
            pads = [0, 0, *self.pads[:rank], 0, 0, *self.pads[rank:]]
            x = writer.op("Pad", [x, pads, *([fill] if fill is not None else [])])
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
            pieces.append(writer.op("Slice", [x, begins, ends, axes, steps]))
        sizes = writer.op("Shape", [pieces[0]])
        rows = [writer.op("Unsqueeze", [piece, [1]]) for piece in pieces]
        stacked = rows[0] if len(rows) == 1 else writer.op("Concat", rows, axis=1)
        # Now [N, kernel, C, windows].
        count = [len(pieces)]
        if groups == 1:
            # 0 keeps a size; the sizes after it are joined.
            merged = writer.compute(
                "Reshape(x, Concat([0], Mul(Slice(sizes, [1], [2]), count), [-1], axis=0))",
                x=stacked,
                sizes=sizes,
                count=count,
            )
            return merged, sizes
        # First [N, kernel, g, C/g, windows].
        columns = writer.compute(
            "Reshape(Transpose(Reshape(x, Concat(lead, each, [-1], axis=0)), perm=[0, 2, 1, 3, 4]),"
            " Concat(apart, Mul(each, count), [-1], axis=0))",
            x=stacked,
            lead=[0, *count, groups],
            each=writer.compute(
                "Div(Slice(sizes, [1], [2]), groups)", sizes=sizes, groups=[groups]
            ),
            apart=[0, groups],
            count=count,
        )
        return columns, sizes


def weight_rows(
    writer: NodeWriter, weight: ir.Value, kernel: Sequence[int], groups: int
) -> ir.Value:
    """Return a kernel [O, C/g, k...] as rows [g, O/g, k * C/g], by place, then channel; `groups` is
    left out if it is 1.
    """
    moved = writer.compute(
        "Transpose(Reshape(w, flat), perm=[0, 2, 1])", w=weight, flat=[0, 0, int(np.prod(kernel))]
    )
    if groups == 1:
        return writer.op("Reshape", [moved, [0, -1]])
    rows = writer.op("Flatten", [moved], axis=1)
    shape = "Concat(groups, Slice(Shape(rows), [1], [2]), axis=0)"
    return writer.compute(f"Reshape(rows, {shape})", rows=rows, groups=[groups, -1])


def finish(
    writer: NodeWriter, products: ir.Value, sizes: ir.Value, bias: ir.Value | None, rank: int
) -> ir.Value:
    """Return products [N, (g,) O/g, windows] as [N, O, windows per axis...], with the bias."""
    result = writer.compute(
        "Reshape(x, Concat(Slice(sizes, [0], [1]), [-1], Slice(sizes, [2], end), axis=0))",
        x=products,
        sizes=sizes,
        end=[2 + rank],
    )
    if bias is None:
        return result
    return writer.compute("Add(x, Reshape(b, column))", x=result, b=bias, column=[-1, *[1] * rank])


def _with_zeros_between(writer: NodeWriter, x: ir.Value, strides: Sequence[int]) -> ir.Value:
    """Put stride - 1 zeros behind every element of each spatial axis."""
    rank = len(strides)
    if all(stride == 1 for stride in strides):
        return x
    ends = [0, 0, *(each for stride in strides for each in (0, stride - 1))]
    return writer.compute(
        "Reshape(Pad(Unsqueeze(x, axes), pads), Mul(Shape(x), grown))",
        x=x,
        axes=[3 + 2 * axis for axis in range(rank)],
        pads=[*[0] * (2 + 2 * rank), *ends],
        grown=[1, 1, *strides],
    )


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
