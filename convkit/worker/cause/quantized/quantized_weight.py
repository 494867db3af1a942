"""Quantized weights as a graph holds them: whole numbers, scales and zero points, packed or not."""

import dataclasses
import math

import numpy as np
import onnx
from onnx import numpy_helper

from convkit.worker.cause.graphs.runnable_graph import Graph


@dataclasses.dataclass(frozen=True)
class QuantizedWeight:
    """A weight of whole numbers, in the layout of its float values.

    `scale` and `zero_point` are shaped to broadcast with `grouped(numbers)`, which has an axis more
    if scales belong to blocks of `block` numbers along `axis`. `bits` is the size of one number; of
    packed ones (4 bits), `pairs` is the axis along which two share a byte. `floats` is the name of
    the values in the lowered graph.
    """

    node: onnx.NodeProto
    name: str
    floats: str
    numbers: np.ndarray
    scale: np.ndarray
    zero_point: np.ndarray
    axis: int
    bits: int = 8
    block: int = 0
    pairs: int | None = None

    @property
    def is_unsigned(self) -> bool:
        """Whether the numbers have no sign."""
        return self.numbers.dtype.kind == "u"

    @property
    def per_channel(self) -> bool:
        """Whether there are several scales."""
        return self.scale.size > 1

    def grouped(self, values: np.ndarray) -> np.ndarray:
        """Return values of the weight's shape with their blocks on their own axis.

        The last block is filled up by repeating its last value.
        """
        if not self.block:
            return values
        count = math.ceil(values.shape[self.axis] / self.block)
        missing = count * self.block - values.shape[self.axis]
        widths = [(0, missing if axis == self.axis else 0) for axis in range(values.ndim)]
        filled = np.pad(values, widths, mode="edge") if missing else values
        before, after = values.shape[: self.axis], values.shape[self.axis + 1 :]
        return filled.reshape(*before, count, self.block, *after)

    def ungrouped(self, values: np.ndarray) -> np.ndarray:
        """Undo `grouped`."""
        if not self.block:
            return values
        shape = list(self.numbers.shape)
        shape[self.axis] = -1
        return values.reshape(shape).take(range(self.numbers.shape[self.axis]), axis=self.axis)

    @property
    def values(self) -> np.ndarray:
        """The float values that the quantized weight represents."""
        with np.errstate(all="ignore"):
            integers = self.grouped(self.numbers).astype(np.float64) - self.zero_point
            return self.ungrouped(integers * self.scale).astype(np.float32)


def constant(graph: Graph, node: onnx.NodeProto, place: int) -> np.ndarray | None:
    """Return a constant input's values, of 4 bits in 8; None if it is absent or computed."""
    name = node.input[place] if place < len(node.input) else ""
    if name in graph.constants:
        return graph.constants[name]
    if name in graph.exotic:  # int4 and uint4, among others
        values = numpy_helper.to_array(graph.exotic[name])
        wider = {"int4": np.int8, "uint4": np.uint8}.get(values.dtype.name)
        return values.astype(wider) if wider is not None else None
    return None


def is_computed(graph: Graph, node: onnx.NodeProto, place: int) -> bool:
    """Say whether an input is given and no constant."""
    given = place < len(node.input) and node.input[place]
    return bool(given) and constant(graph, node, place) is None


def read_weight(
    graph: Graph,
    node: onnx.NodeProto,
    places: tuple[int, int | None, int],
    axis: int,
    scale: np.ndarray | None = None,
) -> QuantizedWeight | None:
    """Return the weight that a node reads; `places` are the inputs with the numbers, the scale
    (None if `scale` is given) and the zero point.
    """
    at, of_scale, of_zero = places
    numbers = constant(graph, node, at)
    scale = scale if of_scale is None else constant(graph, node, of_scale)
    if numbers is None or scale is None or is_computed(graph, node, of_zero):
        return None
    if numbers.ndim < 2 or numbers.dtype.kind not in "iu":
        return None
    name = node.input[at]
    packed = name in graph.exotic  # int4, which numpy lacks
    shape = [1] * numbers.ndim
    if scale.size > 1:
        axis += numbers.ndim if axis < 0 else 0
        if not 0 <= axis < numbers.ndim or scale.size != numbers.shape[axis]:
            return None  # the lint reports it
        shape[axis] = -1
    zero = constant(graph, node, of_zero)
    zeros = np.zeros(scale.size, numbers.dtype) if zero is None else zero
    if zeros.size not in (1, scale.size):
        return None
    zeros = np.broadcast_to(zeros.reshape(-1), (scale.size,))
    return QuantizedWeight(
        node,
        name,
        f"{name}//floats",
        numbers,
        scale.astype(np.float64).reshape(shape),
        zeros.reshape(shape),
        axis,
        bits=4 if packed else 8 * numbers.dtype.itemsize,
        pairs=numbers.ndim - 1 if packed else None,
    )


def whole_attribute(node: onnx.NodeProto, name: str, default: int) -> int:
    """Return an attribute that is a whole number."""
    return next((int(each.i) for each in node.attribute if each.name == name), default)


def read_blocks(
    graph: Graph, node: onnx.NodeProto, axis: int, block: int
) -> QuantizedWeight | None:
    """Return the weight of a DequantizeLinear with a scale for each block along an axis."""
    numbers, scale = constant(graph, node, 0), constant(graph, node, 1)
    if numbers is None or scale is None or is_computed(graph, node, 2):
        return None
    axis += numbers.ndim if axis < 0 else 0
    if numbers.ndim != scale.ndim or math.ceil(numbers.shape[axis] / block) != scale.shape[axis]:
        return None
    zero = constant(graph, node, 2)
    zeros = np.zeros(scale.shape, numbers.dtype) if zero is None else zero
    packed = node.input[0] in graph.exotic
    return QuantizedWeight(
        node,
        node.input[0],
        node.output[0],
        numbers,
        np.expand_dims(scale.astype(np.float64), axis + 1),
        np.expand_dims(zeros, axis + 1),
        axis,
        bits=4 if packed else 8 * numbers.dtype.itemsize,
        block=block,
        pairs=numbers.ndim - 1 if packed else None,
    )


def unpacked(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return the numbers in rows of bytes, the lowest bits of each byte first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return ((packed[..., None] >> shifts) & ((1 << bits) - 1)).reshape(len(packed), -1)
