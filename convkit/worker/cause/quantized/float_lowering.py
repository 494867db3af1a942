"""Writes operators on quantized weights as float ones, to compare the weights with the original's.

Each operator that reads integers with scales is replaced by the float operator that computes the
same from the dequantized weight. What happens to activations (their own rounding) stays.
"""

import dataclasses
import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import helper

from convkit.worker.cause.graphs.runnable_graph import Graph
from convkit.worker.cause.quantized.integer_scaling import scaling_after
from convkit.worker.cause.quantized.quantized_weight import (
    QuantizedWeight,
    constant,
    is_computed,
    read_blocks,
    read_weight,
    unpacked,
    whole_attribute,
)
from convkit.worker.graph.operators.node_builder import NodeBuilder

# An operator of a graph, to lower; None if it is none of this kind, or reads no constant weight.
Lowering = Callable[[Graph, onnx.NodeProto], "Lowered | None"]
_MICROSOFT = "com.microsoft"


@dataclasses.dataclass(frozen=True)
class Lowered:
    """What replaces a node, the constants it needs, and the weight it read.

    `replaced` are values whose nodes it replaces as well: an integer product's scaling.
    """

    weight: QuantizedWeight
    nodes: tuple[onnx.NodeProto, ...]
    constants: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    replaced: frozenset[str] = frozenset()


def lowered(graph: Graph) -> tuple[Graph, list[QuantizedWeight]]:
    """Return a graph that computes with float weights, and what those were computed from.

    Operators whose weights, scales or zero points are not constants stay as they are.
    """
    nodes: dict[int, tuple[onnx.NodeProto, ...]] = {}
    constants: dict[str, np.ndarray] = {}
    weights: list[QuantizedWeight] = []
    for index, node in enumerate(graph.nodes):
        lowering = LOWERINGS.get((node.domain, node.op_type))
        found = lowering(graph, node) if lowering is not None else None
        if found is None:
            continue
        weights.append(found.weight)
        constants |= {**found.constants, found.weight.floats: found.weight.values}
        replaced = [index, *(graph.producers[name] for name in found.replaced)]
        nodes |= dict.fromkeys(replaced, ()) | {max(replaced): found.nodes}
    if not weights:
        return graph, []
    every = [nodes.get(index, (node,)) for index, node in enumerate(graph.nodes)]
    return graph.with_nodes(list(itertools.chain(*every)), constants), weights


def _dequantize_linear(graph: Graph, node: onnx.NodeProto) -> Lowered | None:
    block, axis = whole_attribute(node, "block_size", 0), whole_attribute(node, "axis", 1)
    weight = (
        read_blocks(graph, node, axis, block)
        if block
        else read_weight(graph, node, (0, 1, 2), axis)
    )
    if weight is None:
        return None
    return Lowered(dataclasses.replace(weight, floats=node.output[0]), ())


def _matmul_nbits(graph: Graph, node: onnx.NodeProto) -> Lowered | None:
    """Unpack numbers of 2, 4 or 8 bits, low bits first, in blocks along the inner axis.

    Layout: onnxruntime's ContribOperators.md, com.microsoft.MatMulNBits.
    """
    inner, columns = whole_attribute(node, "K", 0), whole_attribute(node, "N", 0)
    bits, block = whole_attribute(node, "bits", 4), whole_attribute(node, "block_size", 0)
    packed, scale = constant(graph, node, 1), constant(graph, node, 2)
    if (
        packed is None
        or scale is None
        or not (inner and columns and block)
        or bits not in (2, 4, 8)
    ):
        return None
    ordered = len(node.input) > 4 and node.input[4]  # groups of rows in another order
    count = math.ceil(inner / block)
    if ordered or is_computed(graph, node, 3) or scale.size != columns * count:
        return None
    numbers = unpacked(packed.reshape(columns, -1), bits)[:, :inner]
    zero = constant(graph, node, 3)
    if zero is None:
        zeros: np.ndarray = np.full((columns, count), 1 << (bits - 1), np.uint8)
    elif zero.dtype.kind == "f":
        zeros = zero.reshape(columns, count)
    else:
        zeros = unpacked(zero.reshape(columns, -1), bits)[:, :count]
    name = node.input[1]
    weight = QuantizedWeight(
        node,
        name,
        f"{name}//floats",
        np.ascontiguousarray(numbers.T),
        scale.astype(np.float64).reshape(columns, count).T[:, None, :],
        zeros.T[:, None, :],
        axis=0,
        bits=bits,
        block=block,
        pairs=0 if bits == 4 else None,
    )
    return Lowered(weight, _product(node, node.input[0], weight.floats, _given(node, 5)))


def _given(node: onnx.NodeProto, place: int) -> str:
    return str(node.input[place]) if place < len(node.input) else ""


def _product(
    node: onnx.NodeProto, left: str, right: str, bias: str, made: str = ""
) -> tuple[onnx.NodeProto, ...]:
    builder = NodeBuilder(made or node.output[0])
    product = "MatMul(left, right)"
    formula = f"Add({product}, bias)" if bias else product
    builder.compute(formula, left=left, right=right, bias=bias)
    builder.nodes[0].name = node.name
    return tuple(builder.nodes)


def _as_float(
    node: onnx.NodeProto, operator: str, given: Sequence[str], made: str
) -> onnx.NodeProto:
    """Return a node of another operator with the name and attributes of the given one."""
    copy = helper.make_node(operator, given, [made], name=node.name)
    copy.attribute.extend(node.attribute)
    return copy


def _dequantized(node: onnx.NodeProto, value: str, scale: str, zero: str) -> onnx.NodeProto:
    builder = NodeBuilder(node.output[0])
    given = [value, scale, zero] if zero else [value, scale]
    builder.write("DequantizeLinear", *given, inner=f"of {value}")
    return builder.nodes[0]


def _dynamic_matmul(graph: Graph, node: onnx.NodeProto) -> Lowered | None:
    weight = read_weight(graph, node, (1, 2, 3), -1)
    if weight is None:
        return None
    builder = NodeBuilder(node.output[0])
    rounded = [builder.inner(each) for each in ("rounded", "scale", "zero")]
    builder.write("DynamicQuantizeLinear", node.input[0], outputs=rounded)
    floats = _dequantized(node, *rounded)
    product = _product(node, floats.output[0], weight.floats, _given(node, 4))
    return Lowered(weight, (*builder.nodes, floats, *product))


def _matmul_to_float(graph: Graph, node: onnx.NodeProto) -> Lowered | None:
    weight = read_weight(graph, node, (1, 3, 5), -1)
    if weight is None:
        return None
    floats = _dequantized(node, node.input[0], node.input[2], _given(node, 4))
    product = _product(node, floats.output[0], weight.floats, _given(node, 6))
    return Lowered(weight, (floats, *product))


def _quantized_product(
    operator: str, axis: Callable[[onnx.NodeProto], int], *, result: int, bias: int = 0
) -> Lowering:
    """Lower a product of a quantized left side: `bias` and `result` are the places of its bias and
    its result's scale. Without that scale, the result stays in float.
    """

    def lower(graph: Graph, node: onnx.NodeProto) -> Lowered | None:
        weight = read_weight(graph, node, (3, 4, 5), axis(node))
        biases = _with_bias(graph, node, bias, (1, 4)) if bias else {}
        if weight is None or biases is None:
            return None
        floats = _dequantized(node, *node.input[:3])
        again = [each for each in (_given(node, result), _given(node, result + 1)) if each]
        made = f"{node.output[0]}//plain" if again else node.output[0]
        given = [floats.output[0], weight.floats, *biases]
        nodes = [floats, _as_float(node, operator, given, made)]
        if again:
            nodes.append(helper.make_node("QuantizeLinear", [made, *again], node.output))
        return Lowered(weight, tuple(nodes), biases)

    return lower


def _with_bias(
    graph: Graph, node: onnx.NodeProto, place: int, scales: tuple[int, int]
) -> dict[str, np.ndarray] | None:
    """Return a bias of whole numbers as floats, by name: its scale is the product of both others.

    None if it cannot be computed here.
    """
    if not _given(node, place):
        return {}
    values = [constant(graph, node, each) for each in (place, *scales)]
    bias, one, other = values
    if bias is None or one is None or other is None:
        return None
    floats = bias.astype(np.float64) * one.astype(np.float64).ravel() * other.ravel()
    return {f"{node.input[place]}//floats": floats.astype(np.float32)}


def _gemm_axis(node: onnx.NodeProto) -> int:
    return 0 if whole_attribute(node, "transB", 0) else 1


def _integer(operator: str, axis: int) -> Lowering:
    """Lower an integer product with the scaling that follows it: a cast, then multiplications."""

    def lower(graph: Graph, node: onnx.NodeProto) -> Lowered | None:
        scaling = scaling_after(graph, node.output[0])
        if scaling is None:
            return None
        weight = read_weight(graph, node, (1, None, 3), axis, scaling.constant)
        if weight is None:
            return None
        builder = NodeBuilder(node.output[0])
        wide, zero = "Cast(x, to=1)", _given(node, 2)
        formula = f"Sub({wide}, Cast(zero, to=1))" if zero else wide
        left = builder.compute(formula, x=node.input[0], zero=zero, inner="left")
        plain = builder.inner("floats")
        product = _as_float(node, operator, [left, weight.floats], plain)
        last = helper.make_node("Mul", [plain, scaling.computed], [scaling.result])
        return Lowered(weight, (*builder.nodes, product, last), replaced=scaling.replaced)

    return lower


LOWERINGS: dict[tuple[str, str], Lowering] = {
    ("", "DequantizeLinear"): _dequantize_linear,
    (_MICROSOFT, "DequantizeLinear"): _dequantize_linear,
    ("", "QLinearMatMul"): _quantized_product("MatMul", lambda _: -1, result=6),
    ("", "QLinearConv"): _quantized_product("Conv", lambda _: 0, result=6, bias=8),
    (_MICROSOFT, "QGemm"): _quantized_product("Gemm", _gemm_axis, result=7, bias=6),
    ("", "MatMulInteger"): _integer("MatMul", -1),
    ("", "ConvInteger"): _integer("Conv", 0),
    (_MICROSOFT, "DynamicQuantizeMatMul"): _dynamic_matmul,
    (_MICROSOFT, "MatMulIntegerToFloat"): _matmul_to_float,
    (_MICROSOFT, "MatMulNBits"): _matmul_nbits,
}
