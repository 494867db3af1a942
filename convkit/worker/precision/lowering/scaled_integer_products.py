"""Finds the arithmetic that turns integer products back into floating point.

A dynamically quantized layer multiplies integers, casts the sums, which reach millions, and only
then multiplies them by the scales of both operands: `DynamicQuantizeLinear`, `ConvInteger`, `Cast`,
`Mul`. Casting first and scaling afterwards overflows float16, and the product of two scales may be
below its range. Neither is in the model's activations, so these steps stay float32.
"""

from collections.abc import Iterator

import onnx_ir as ir

from convkit.worker.graph.graph_traversal import constant_tensor

_PRODUCTS = frozenset({"ConvInteger", "MatMulInteger"})
# What may be between a product and the multiplication by its scales: a bias in integers, layouts.
_KEEPING = frozenset({"Add", "Cast", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
# How a scale is made of others.
_SCALING = frozenset({"Mul", "Div", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def scales_of_integer_products(model: ir.Model) -> set[ir.Node]:
    """Return the nodes that multiply integer products by their scales, and those that compute
    these scales.
    """
    found: set[ir.Node] = set()
    for node in model.graph.all_nodes():
        if node.domain == "" and node.op_type in _PRODUCTS:
            for scaling, scale in _scalings(node.outputs[0]):
                found |= {scaling, *_makers(scale)}
    return found


def _scalings(product: ir.Value) -> Iterator[tuple[ir.Node, ir.Value]]:
    """Walk the multiplications of a product by scales, each with the scale."""
    pending, seen = [product], {product}
    while pending:
        value = pending.pop()
        is_float = value.dtype == ir.DataType.FLOAT
        for node, index in value.uses():
            if node.domain != "":
                continue
            scale = node.inputs[1 - index] if node.op_type in ("Mul", "Div") and is_float else None
            if scale is not None and _is_scale(scale):
                yield node, scale
            elif node.op_type not in _KEEPING or (is_float and node.op_type == "Add"):
                continue
            if node.outputs[0] not in seen:
                seen.add(node.outputs[0])
                pending.append(node.outputs[0])


def _is_scale(value: ir.Value) -> bool:
    """Return True if a value is a constant or the scale of a dynamically quantized tensor, or is
    made of such.
    """
    if constant_tensor(value) is not None:
        return True
    node = value.producer()
    if node is None or node.domain != "":
        return False
    if node.op_type == "DynamicQuantizeLinear":
        return value is node.outputs[1]
    operands = [operand for operand in node.inputs if operand is not None]
    return node.op_type in _SCALING and all(map(_is_scale, operands))


def _makers(scale: ir.Value) -> set[ir.Node]:
    node = scale.producer()
    if node is None or node.domain != "" or node.op_type not in _SCALING:
        return set()
    makers = [_makers(operand) for operand in node.inputs if operand is not None]
    return {node}.union(*makers)
