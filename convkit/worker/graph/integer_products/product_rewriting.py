"""Rewrites a graph so that every processor multiplies its 8-bit numbers as one family does.

Exact: signed weights are stored as unsigned ones, with their zero points moved by 128. The products
are the same, and every processor sums unsigned products exactly. Saturating: the exact sums, plus
what clipping changes, written out as operators on whole numbers in float32. Scaling and rounding
behind the sums are written out as onnxruntime's kernels do them; this reproduces its results to the
bit (measured with 1.31, see tests/models/integer_products/).
"""

import dataclasses

import numpy as np
import onnx
import onnx_ir as ir

from convkit.worker.graph.graph_traversal import all_names, constant_tensor
from convkit.worker.graph.integer_products.integer_operators import (
    Product,
    composites_of,
    is_product,
    products_of,
)
from convkit.worker.graph.integer_products.saturating_pairs import (
    Pairs,
    saturating_pairs,
    write_correction,
)
from convkit.worker.graph.rewriting.convolution_products import Window, finish, kernel_shape
from convkit.worker.graph.rewriting.node_writer import NodeWriter
from convkit.worker.graph.typed_graph import with_types

_FLOAT, _INT32 = ir.DataType.FLOAT, ir.DataType.INT32
_UINT8, _INT8 = ir.DataType.UINT8, ir.DataType.INT8


@dataclasses.dataclass(frozen=True)
class SaturatingNode:
    """A node some of whose products can saturate.

    `weight` is the name of its weights, `left` that of the tensor on its left side, `output` that
    of its result, `share` the share of its pairs of weights that can saturate with some input.
    `count` is the output with the number of pairs that did and the number of all pairs, if it is
    counted.
    """

    node: str
    operator: str
    weight: str
    left: str
    output: str
    share: float
    count: str = ""


@dataclasses.dataclass(frozen=True)
class Rewritten:
    """The nodes that can saturate, in the order of the switches, and those whose saturation is not
    written out: operators with several products inside, and products of two computed tensors.
    """

    saturating: tuple[SaturatingNode, ...]
    unknown: tuple[SaturatingNode, ...]


SWITCHES = "convkit.saturating"


def make_products_exact(model: ir.Model) -> None:
    """Make every product of a graph exact, in place, whatever family of processors runs it."""
    names = all_names(model)
    for product in list(products_of(model)):
        if product.may_saturate:
            _make_exact(product, names)
    for composite in list(composites_of(model)):
        for weight, zero in composite.weights:
            _store_other_sign(composite.node, weight, zero, names)


def with_exact_products(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose products are exact on every processor: itself, if it has none that can
    saturate.
    """
    rewritten = ir.from_proto(model)
    if not any(is_product(node.domain, node.op_type) for node in rewritten.graph.all_nodes()):
        return model
    rewritten = with_types(rewritten)
    make_products_exact(rewritten)
    return ir.to_proto(rewritten)


def switch_products(model: ir.Model, *, counted: bool = False) -> Rewritten:
    """Let each product of a graph saturate or be exact, in place, by a new input: float32, 1 or 0
    for each of the nodes that can saturate. If there is none, there is no such input. `counted`
    adds outputs with the numbers of saturated pairs.
    """
    names = all_names(model)
    opset = model.opset_imports.get("", 0)
    switches = ir.Value(name=SWITCHES, type=ir.TensorType(_FLOAT))
    found: list[SaturatingNode] = []
    unknown: list[SaturatingNode] = []
    for product in list(products_of(model)):
        if not product.may_saturate:
            continue
        pairs = _pairs(product)
        if pairs is None:
            unknown.append(_described(product.node, product.weight, None, float("nan")))
        elif any(map(len, pairs)):
            left = product.value(product.operands.numbers) or product.node.inputs[0]
            node = _described(product.node, product.weight, left, _share(pairs))
            writer = NodeWriter(product.node, names, opset)
            saturation = _Saturation(product, pairs, writer, switches, len(found), counted=counted)
            if counted and product.node.graph is model.graph:
                node = dataclasses.replace(node, count=saturation.count_name)
            saturation.write()
            if node.count:
                model.graph.outputs.append(saturation.count)
            found.append(node)
            continue
        _make_exact(product, names)
    for composite in list(composites_of(model)):
        weight = composite.node.inputs[composite.weights[0][0]]
        assert weight is not None
        unknown.append(_described(composite.node, weight, None, float("nan")))
        for place, zero in composite.weights:
            _store_other_sign(composite.node, place, zero, names)
    if found:
        switches.shape = ir.Shape([len(found)])
        model.graph.inputs.append(switches)
    return Rewritten(tuple(found), tuple(unknown))


def _described(
    node: ir.Node, weight: ir.Value, left: ir.Value | None, share: float
) -> SaturatingNode:
    name = left.name if left is not None else ""
    output = node.outputs[0].name or ""
    return SaturatingNode(
        node.name or "", node.op_type, weight.name or "", name or "", output, share
    )


def _pairs(product: Product) -> list[Pairs] | None:
    """Return the pairs that can saturate, per group of a convolution; None if they are unknown."""
    numbers = product.weight_numbers
    operands, node = product.operands, product.node
    if numbers is None:
        return None
    if node.op_type == "QLinearConv":
        zero = product.value(operands.weight_zero)
        kernel = kernel_shape(node, product.weight)
        known = (
            zero is None or (tensor := constant_tensor(zero)) is None or not tensor.numpy().any()
        )
        if not known or kernel is None or Window.of(node, kernel) is None:
            return None
        groups = node.attributes.get_int("group", 1)
        # [O, C/g, k...] -> [g, O/g, C/g, places] -> [g][places * C/g, O/g], as the kernel sums.
        split = numbers.reshape(groups, len(numbers) // groups, numbers.shape[1], -1)
        rows = split.transpose(0, 3, 2, 1)
        return [saturating_pairs(each.reshape(-1, each.shape[-1])) for each in rows]
    if node.op_type == "ConvInteger" or numbers.ndim != 2:
        return None
    turned = node.attributes.get_int("transB", 0)
    return [saturating_pairs(numbers.T if turned else numbers)]


def _share(pairs: list[Pairs]) -> float:
    return sum(each.share for each in pairs) / len(pairs)


class _Saturation:
    """Writes sums that saturate if a switch is on, and what the operator makes of them, in a node's
    place.
    """

    def __init__(
        self,
        product: Product,
        pairs: list[Pairs],
        writer: NodeWriter,
        switches: ir.Value,
        index: int,
        *,
        counted: bool,
    ) -> None:
        self._product = product
        self._pairs = pairs
        self._writer = writer
        self._switches = switches
        self._index = index
        self._counts: list[ir.Value] | None = [] if counted else None
        self.count_name = writer.free(f"{SWITCHES}/{index}") if counted else ""
        self.count: ir.Value | None = None

    def write(self) -> None:
        product, writer = self._product, self._writer
        node, operands = product.node, product.operands
        left = product.value(operands.numbers)
        scale, zero = product.value(operands.scale), product.value(operands.zero)
        if left is None:  # the operator quantizes its input
            left, scale, zero = writer.node(
                "DynamicQuantizeLinear", [node.inputs[0]], [_UINT8, _FLOAT, _UINT8]
            )
        if node.attributes.get_int("transA", 0):
            left = writer.op("Transpose", [left], perm=[1, 0])
        if node.op_type == "QLinearConv":
            sums = self._convolved(left, zero)
        else:
            sums = self._multiplied(left, zero)
        if operands.scale is None and operands.numbers is not None:
            writer.replace([sums])
            return
        writer.replace([_scaled(product, sums, scale, writer)])

    def _multiplied(self, left: ir.Value, zero: ir.Value | None) -> ir.Value:
        """Return the int32 sums of a product of matrices."""
        writer, (pairs,) = self._writer, self._pairs
        weights = writer.constant(_other_sign(pairs.weights))
        own = self._product.value(self._product.operands.weight_zero)
        operands = [left, weights, zero, _moved_zero(own, _UINT8, writer)]
        exact = writer.op("MatMulInteger", operands)
        wide = writer.cast(left, _FLOAT)
        change = write_correction(writer, wide, pairs, axis=-1, counts=self._counts)
        assert change is not None
        self._count(left, pairs.weights.shape[0] // 2 * pairs.weights.shape[1], len(pairs.weights))
        return self._changed(exact, change)

    def _convolved(self, left: ir.Value, zero: ir.Value | None) -> ir.Value:
        """Return the int32 sums of a convolution, with its bias."""
        product, writer = self._product, self._writer
        node = product.node
        kept = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
        attributes = [node.attributes[name] for name in kept if name in node.attributes]
        # ConvInteger sums unsigned inputs and a signed kernel exactly on every processor.
        exact = writer.copied("ConvInteger", [left, product.weight, zero], _INT32, attributes)
        kernel = kernel_shape(node, product.weight)
        assert kernel is not None
        window = Window.of(node, kernel)
        assert window is not None
        fill = None if zero is None else writer.cast(zero, _FLOAT)
        groups = len(self._pairs)
        columns, sizes = window.columns(writer, writer.cast(left, _FLOAT), groups, fill)
        parts = [self._group(columns, index) for index in range(groups)]
        first = self._pairs[0].weights
        self._count(columns, len(first) // 2 * first.shape[1], len(first))
        joined = parts[0] if groups == 1 else writer.op("Concat", parts, axis=1)
        sums = self._changed(exact, finish(writer, joined, sizes, None, len(kernel)))
        bias = product.value(product.operands.bias)
        if bias is None:
            return sums
        column = [-1, *[1] * len(kernel)]
        return writer.compute(
            "Add(sums, Reshape(bias, column))", sums=sums, bias=bias, column=column
        )

    def _group(self, columns: ir.Value, index: int) -> ir.Value:
        """Return what saturation adds to a group's sums: [N, O/g, windows]."""
        writer, pairs = self._writer, self._pairs[index]
        if len(self._pairs) > 1:
            columns = writer.op("Gather", [columns, index], axis=1)
        change = write_correction(writer, columns, pairs, axis=-2, counts=self._counts)
        if change is not None:
            return change
        row = "Gather(columns, [0], axis=-2)"
        repeats = [0] * pairs.weights.shape[1]
        return writer.compute(
            f"Gather(Sub({row}, {row}), repeats, axis=-2)", columns=columns, repeats=repeats
        )

    def _changed(self, exact: ir.Value, change: ir.Value) -> ir.Value:
        """Add a change to exact sums if the switch is on."""
        writer = self._writer
        switched = writer.compute(
            "Mul(change, Gather(switches, index))",
            change=change,
            switches=self._switches,
            index=self._index,
        )
        return writer.op("Add", [exact, writer.cast(switched, _INT32)])

    def _count(self, left: ir.Value, pairs_per_row: int, summed: int) -> None:
        """Make an output of the numbers of pairs that saturated, and of all: `left` has `summed`
        numbers per row.
        """
        if self._counts is None:
            return
        writer = self._writer
        self.count = writer.compute(
            "Concat(saturated, Mul(size, share), axis=0)",
            saturated=writer.op("Sum", self._counts),
            size=writer.cast(writer.op("Size", [left]), _FLOAT),
            share=[pairs_per_row / summed],
        )
        self.count.name, self.count.shape = self.count_name, ir.Shape([2])


def _scaled(
    product: Product, sums: ir.Value, scale: ir.Value | None, writer: NodeWriter
) -> ir.Value:
    """Return what an operator makes of its sums: floats, or numbers of the result's type."""
    node, operands = product.node, product.operands
    weight_scale = product.value(operands.weight_scale)
    assert scale is not None
    assert weight_scale is not None
    factor = writer.op("Mul", [scale, weight_scale])
    alpha = node.attributes.get_float("alpha", 1.0)
    if alpha != 1.0:
        factor = writer.op("Mul", [alpha, factor])
    bias = product.value(operands.bias)
    if bias is not None and node.op_type == "QGemm":
        sums = writer.op("Add", [sums, bias])
    result_scale = product.value(operands.result_scale)
    if result_scale is not None:
        factor = writer.op("Div", [factor, result_scale])
    if product.is_convolution:
        rank = len(product.weight.shape or ()) - 2
        factor = writer.op("Reshape", [factor, [-1, *[1] * rank]])
    floats = writer.op("Mul", [writer.cast(sums, _FLOAT), factor])
    if result_scale is None:
        if bias is not None and node.op_type != "QGemm":
            floats = writer.op("Add", [floats, bias])
        return floats
    kind = node.outputs[0].dtype or _UINT8
    return _requantized(floats, product.value(operands.result_zero), kind, writer)


def _requantized(
    floats: ir.Value, zero: ir.Value | None, kind: ir.DataType, writer: NodeWriter
) -> ir.Value:
    """Round to nearest even, add the zero point, and clip to the type's range."""
    limits = np.iinfo(kind.numpy())
    rounded = writer.op("Round", [floats])
    if zero is not None:
        rounded = writer.op("Add", [rounded, writer.cast(zero, _FLOAT)])
    return writer.cast(writer.op("Clip", [rounded, float(limits.min), float(limits.max)]), kind)


def _make_exact(product: Product, names: set[str | None]) -> None:
    """Store the weights of a node with the other sign, in place."""
    pair = (product.operands.weight, product.operands.weight_zero or 0)
    _store_other_sign(product.node, *pair, names)


def _store_other_sign(node: ir.Node, weight: int, zero: int, names: set[str | None]) -> None:
    value = node.inputs[weight]
    assert value is not None
    kind = _UINT8 if value.dtype == _INT8 else _INT8
    writer = NodeWriter(node, names, 0)
    tensor = constant_tensor(value)
    if tensor is not None:
        moved = writer.constant(_other_sign(tensor.numpy()))
    else:
        moved = _shifted(value, kind, writer)
    if len(node.inputs) <= zero:
        node.resize_inputs(zero + 1)
    moved_zero = _moved_zero(node.inputs[zero], kind, writer)
    node.replace_input_with(weight, moved)
    node.replace_input_with(zero, moved_zero)


def _other_sign(numbers: np.ndarray) -> np.ndarray:
    """Return int8 as uint8 plus 128, or uint8 as int8 minus 128."""
    kind = np.uint8 if numbers.dtype == np.int8 else np.int8
    return (np.ascontiguousarray(numbers).view(np.uint8) ^ np.uint8(128)).view(kind)


def _moved_zero(zero: ir.Value | None, kind: ir.DataType, writer: NodeWriter) -> ir.Value:
    """Return a zero point in the other sign; none at all means 0."""
    if zero is None:
        return writer.constant(np.array(128 if kind == _UINT8 else -128, kind.numpy()))
    tensor = constant_tensor(zero)
    if tensor is not None:
        return writer.constant(_other_sign(tensor.numpy()))
    return _shifted(zero, kind, writer)


def _shifted(value: ir.Value, kind: ir.DataType, writer: NodeWriter) -> ir.Value:
    half = 128 if kind == _UINT8 else -128
    return writer.cast(writer.op("Add", [writer.cast(value, _INT32), half]), kind)
