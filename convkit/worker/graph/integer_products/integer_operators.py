"""Finds the operators of a graph that multiply 8-bit numbers in whole numbers."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.graph_traversal import constant_tensor

_CONTRIB = "com.microsoft"


@dataclasses.dataclass(frozen=True)
class Operands:
    """Where an operator has its operands: the left side's numbers (None: the operator quantizes
    floats itself), their scale and zero point, the weights of the right side, and the same of them,
    then a bias, and the result's scale and zero point. None: it has no such input.
    """

    numbers: int | None
    scale: int | None
    zero: int | None
    weight: int
    weight_scale: int | None
    weight_zero: int | None
    bias: int | None = None
    result_scale: int | None = None
    result_zero: int | None = None


_OPERANDS: dict[tuple[str, str], Operands] = {
    ("", "MatMulInteger"): Operands(0, None, 2, 1, None, 3),
    ("", "ConvInteger"): Operands(0, None, 2, 1, None, 3),
    ("", "QLinearMatMul"): Operands(0, 1, 2, 3, 4, 5, None, 6, 7),
    ("", "QLinearConv"): Operands(0, 1, 2, 3, 4, 5, 8, 6, 7),
    (_CONTRIB, "MatMulIntegerToFloat"): Operands(0, 2, 4, 1, 3, 5, 6),
    (_CONTRIB, "DynamicQuantizeMatMul"): Operands(None, None, None, 1, 2, 3, 4),
    (_CONTRIB, "QGemm"): Operands(0, 1, 2, 3, 4, 5, 6, 7, 8),
}
# Operators with several products inside, by their weights' and these weights' zero points' places.
_COMPOSITES: dict[tuple[str, str], tuple[tuple[int, int], ...]] = {
    (_CONTRIB, "DynamicQuantizeLSTM"): ((1, 9), (2, 11)),
    (_CONTRIB, "QAttention"): ((1, 7),),
}


@dataclasses.dataclass(frozen=True)
class Product:
    """A node that multiplies 8-bit numbers."""

    node: ir.Node
    operands: Operands

    def value(self, place: int | None) -> ir.Value | None:
        """Return an operand; None if the node has none."""
        if place is None or place >= len(self.node.inputs):
            return None
        return self.node.inputs[place]

    @property
    def weight(self) -> ir.Value:
        """The right side's numbers."""
        value = self.value(self.operands.weight)
        assert value is not None
        return value

    @property
    def weight_numbers(self) -> np.ndarray | None:
        """The right side's numbers, if they are constant."""
        tensor = constant_tensor(self.weight)
        return None if tensor is None else tensor.numpy()

    @property
    def is_convolution(self) -> bool:
        """True for products with a kernel that moves over the input."""
        return self.node.op_type in ("QLinearConv", "ConvInteger")

    @property
    def may_saturate(self) -> bool:
        """True if pairs of these products saturate on the other family: unsigned numbers on the
        left and signed ones on the right of onnxruntime's kernel (measured with 1.31 under both
        families: every other combination of signs is summed exactly by both).

        `ConvInteger` has its kernel on the left, so there it is signed inputs and an unsigned
        kernel. `QLinearConv` sums convolutions per channel with a kernel of its own, exactly.
        """
        left = self.value(self.operands.numbers)
        is_signed = left is not None and left.dtype == ir.DataType.INT8
        weight = self.weight.dtype
        if self.node.op_type == "ConvInteger":
            return is_signed and weight == ir.DataType.UINT8
        return not is_signed and weight == ir.DataType.INT8 and not self._is_depthwise

    @property
    def _is_depthwise(self) -> bool:
        if self.node.op_type != "QLinearConv":
            return False
        groups = self.node.attributes.get_int("group", 1)
        shape = self.weight.shape
        return shape is not None and groups > 1 and list(shape)[:2] == [groups, 1]


@dataclasses.dataclass(frozen=True)
class Composite:
    """A node with several products inside: the places of their weights and zero points."""

    node: ir.Node
    weights: tuple[tuple[int, int], ...]


def is_product(domain: str, operator: str) -> bool:
    """Return True for an operator that multiplies 8-bit numbers."""
    key = ("" if domain == "ai.onnx" else domain, operator)
    return key in _OPERANDS or key in _COMPOSITES


def products_of(model: ir.Model) -> Iterator[Product]:
    """Walk the nodes of a graph, and of those inside it, that multiply 8-bit numbers."""
    for node in model.graph.all_nodes():
        operands = _OPERANDS.get((node.domain, node.op_type))
        if operands is not None and node.inputs[operands.weight] is not None:
            yield Product(node, operands)


def composites_of(model: ir.Model) -> Iterator[Composite]:
    """Walk the nodes with several products inside whose weights are signed."""
    for node in model.graph.all_nodes():
        weights = _COMPOSITES.get((node.domain, node.op_type), ())
        signed = tuple(
            pair
            for pair in weights
            if (value := node.inputs[pair[0]]) is not None and value.dtype == ir.DataType.INT8
        )
        if signed:
            yield Composite(node, signed)
