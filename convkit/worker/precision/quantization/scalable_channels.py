"""Finds tensors whose channels may be scaled without changing what a graph computes: what makes
them is divided by a factor per channel, and the weights that consume them are multiplied by it.

This holds if everything in between commutes with positive factors per channel (a ReLU does, a GELU
does not), as Nagel et al. 2019 (arXiv:1906.04721) use it between convolutions, and Xiao et al. 2022
(arXiv:2211.10438) behind normalizations.
"""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.graph_traversal import constant_tensor
from convkit.worker.precision.quantization.preparation import is_plain_gemm, weight


@dataclasses.dataclass(frozen=True)
class ScaledConstant:
    """A constant of a node, and an axis of it along which channels lie.

    `groups`: each of that many equal parts of the first axis has its own part of the channels.
    """

    node: ir.Node
    index: int
    axis: int
    groups: int = 1

    def scaled(self, values: np.ndarray, factors: np.ndarray) -> np.ndarray:
        """Return a constant's values multiplied by factors [channels]; it is broadcast to them if
        it has one value for all.
        """
        if self.groups > 1:
            rows = len(values) // self.groups
            per_row = np.repeat(factors.reshape(self.groups, -1), rows, axis=0)
            shape = [*per_row.shape, *[1] * (values.ndim - 2)]
            return np.asarray(values * per_row.reshape(shape), values.dtype)
        missing = max(0, -self.axis - values.ndim)
        wide = values.reshape([1] * missing + list(values.shape))
        shape = [1] * wide.ndim
        shape[self.axis] = -1
        return np.asarray(wide * factors.reshape(shape), values.dtype)


@dataclasses.dataclass(frozen=True)
class Consumer:
    """A product that reads a tensor with scaled channels, along `axis` of it, and its weight."""

    tensor: ir.Value
    axis: int
    weight: ScaledConstant


@dataclasses.dataclass(frozen=True)
class ScalableChannels:
    """The constants that make the channels of a tensor, which are divided, and its consumers."""

    tensor: ir.Value
    channels: int
    makers: tuple[ScaledConstant, ...]
    consumers: tuple[Consumer, ...]


class _NotScalableError(Exception):
    """Something reads a tensor in a way that does not commute with factors."""


def scalable_channels(model: ir.Model) -> Iterator[ScalableChannels]:
    """Walk the tensors of a prepared model whose channels may be scaled, in graph order.

    Each weight consumes the channels of one of them: the first from which it is reached.
    """
    taken: set[tuple[ir.Node, int]] = set()
    for node in model.graph:
        for output, axis, made in _made_channels(node):
            try:
                found = _Walk(model, output, axis)
            except _NotScalableError:
                continue
            makers = (*made, *found.makers)
            weights = {(one.weight.node, one.weight.index) for one in found.consumers}
            if not weights & (taken | {(one.node, one.index) for one in makers}):
                taken |= weights
                yield ScalableChannels(output, found.channels, makers, tuple(found.consumers))


def _made_channels(node: ir.Node) -> Iterator[tuple[ir.Value, int, tuple[ScaledConstant, ...]]]:
    """Yield a node's output, the axis of its channels and the constants that make them."""
    if node.domain != "" or not node.outputs:
        return
    output = node.outputs[0]
    rank = _rank(output)
    match node.op_type:
        case "Conv":
            own = _constants(node, {1: 0, 2: 0})
            channel: int | None = 1
        case "ConvTranspose" if _number(node, "group", 1) == 1:
            own, channel = _constants(node, {1: 1, 2: 0}), 1
        case "BatchNormalization" | "InstanceNormalization":
            own, channel = _constants(node, {1: 0, 2: 0}), 1
        case "LayerNormalization" if _number(node, "axis", -1) in {-1, (rank or 0) - 1}:
            own = _constants(node, {1: -1, 2: -1})
            channel = None if rank is None else rank - 1
        case "MatMul" if _is_matrix(node.inputs[1]):
            own = _constants(node, {1: 1})
            channel = None if rank is None else rank - 1
        case "Gemm" if is_plain_gemm(node):
            own = _constants(node, {1: 0 if _number(node, "transB", 0) else 1, 2: -1})
            channel = 1
        case "Mul":
            yield from _scaled_by_constant(node)
            return
        case _:
            return
    if own is not None and channel is not None:
        yield output, channel, own


def _scaled_by_constant(
    node: ir.Node,
) -> Iterator[tuple[ir.Value, int, tuple[ScaledConstant, ...]]]:
    """Yield the product with a vector, such as a normalization's that is written out."""
    rank = _rank(node.outputs[0])
    for index, value in enumerate(node.inputs):
        tensor = weight(value)
        if tensor is None or rank is None:
            continue
        long = [axis for axis, size in enumerate(tensor.shape) if size != 1]
        if len(long) == 1 and len(tensor.shape) <= rank:
            axis = long[0] - len(tensor.shape)
            yield node.outputs[0], rank + axis, (ScaledConstant(node, index, axis),)


def _constants(node: ir.Node, axes: dict[int, int]) -> tuple[ScaledConstant, ...] | None:
    """Return a node's constants with the axes of their channels; None if one is computed."""
    found = []
    for index, axis in axes.items():
        value = node.inputs[index] if index < len(node.inputs) else None
        if value is None:
            continue
        if weight(value) is None:
            return None
        found.append(ScaledConstant(node, index, axis))
    return tuple(found) or None


class _Walk:
    """What a tensor's channels reach: constants that are added to them, and products' weights."""

    def __init__(self, model: ir.Model, tensor: ir.Value, axis: int) -> None:
        self.makers: list[ScaledConstant] = []
        self.consumers: list[Consumer] = []
        self._model = model
        size = _size(tensor, axis)
        if size is None or size < 2:
            raise _NotScalableError
        self.channels = size
        self._follow(tensor, axis)
        if not self.consumers:
            raise _NotScalableError

    def _follow(self, value: ir.Value, axis: int) -> None:
        if value.is_graph_output() or _size(value, axis) != self.channels:
            raise _NotScalableError
        for node, index in value.uses():
            if node.graph is not self._model.graph or node.domain != "":
                raise _NotScalableError
            consumed = _consumed(node, index, axis)
            if consumed is not None:
                self.consumers.append(Consumer(value, axis, consumed))
                continue
            passes = _PASSES.get(node.op_type)
            if passes is None or len(node.outputs) != 1:
                raise _NotScalableError
            if node.op_type in {"Add", "Sub"}:
                self.makers.append(_added(node, index, axis))
            self._follow(node.outputs[0], passes(node, index, axis))


def _consumed(node: ir.Node, index: int, axis: int) -> ScaledConstant | None:
    """Return the weight of a product that sums over the channels, or weighs them one by one."""
    if index != 0 or len(node.inputs) < 2 or weight(node.inputs[1]) is None:
        return None
    match node.op_type:
        case "Conv" if axis == 1:
            return ScaledConstant(node, 1, 1, _number(node, "group", 1))
        case "ConvTranspose" if axis == 1 and _number(node, "group", 1) == 1:
            return ScaledConstant(node, 1, 0)
        case "MatMul" if _is_matrix(node.inputs[1]) and axis + 1 == _rank(node.inputs[0]):
            return ScaledConstant(node, 1, 0)
        case "Gemm" if is_plain_gemm(node) and axis == 1:
            return ScaledConstant(node, 1, 1 if _number(node, "transB", 0) else 0)
    return None


def _added(node: ir.Node, index: int, axis: int) -> ScaledConstant:
    """Return the constant that is added to channels."""
    other = node.inputs[1 - index]
    tensor, rank = weight(other), _rank(node.outputs[0])
    if tensor is None or rank is None or len(tensor.shape) > rank:
        raise _NotScalableError
    return ScaledConstant(node, 1 - index, axis - rank)


def _same(_: ir.Node, index: int, axis: int) -> int:
    if index != 0:
        raise _NotScalableError
    return axis


def _with_constant(node: ir.Node, index: int, axis: int) -> int:
    """A constant operand, which lies along the same axes."""
    other = node.inputs[1 - index]
    rank, out = _rank(node.inputs[index]), _rank(node.outputs[0])
    if other is None or constant_tensor(other) is None or rank is None or rank != out:
        raise _NotScalableError
    return axis


def _divided(node: ir.Node, index: int, axis: int) -> int:
    return _with_constant(node, _same(node, index, 0), axis)


def _padded(node: ir.Node, index: int, axis: int) -> int:
    given = node.inputs[2] if len(node.inputs) > 2 else None
    filled = None if given is None else constant_tensor(given)
    if given is not None and (filled is None or filled.numpy().any()):
        raise _NotScalableError
    return _same(node, index, axis)


def _moved(node: ir.Node, index: int, axis: int) -> int:
    given = node.attributes.get("perm")
    rank = _rank(node.inputs[0])
    if rank is None:
        raise _NotScalableError
    order = list(given.as_ints()) if given is not None else list(reversed(range(rank)))
    return order.index(_same(node, index, axis))


def _reshaped(node: ir.Node, index: int, axis: int) -> int:
    """An axis that a reshape leaves alone: all sizes up to it are the same, or all from it on."""
    before, after = node.inputs[0], node.outputs[0]
    _same(node, index, axis)
    if before is None or before.shape is None or after.shape is None:
        raise _NotScalableError
    old, new = list(before.shape), list(after.shape)
    if any(size == ir.SymbolicDim(None) for size in (*old, *new)):
        raise _NotScalableError
    if old[: axis + 1] == new[: axis + 1]:
        return axis
    tail = len(old) - axis
    if len(new) >= tail and old[axis:] == new[-tail:]:
        return len(new) - tail
    raise _NotScalableError


def _averaged(node: ir.Node, index: int, axis: int) -> int:
    rank = _rank(node.inputs[0])
    given = node.inputs[1] if len(node.inputs) > 1 else None
    if given is not None:
        tensor = constant_tensor(given)
        axes = None if tensor is None else [int(each) for each in tensor.numpy().ravel()]
    else:
        attribute = node.attributes.get("axes")
        axes = None if attribute is None else list(attribute.as_ints())
    if axes is None or rank is None:
        raise _NotScalableError
    reduced = {each % rank for each in axes}
    if axis in reduced:
        raise _NotScalableError
    if _number(node, "keepdims", 1):
        return _same(node, index, axis)
    return _same(node, index, axis) - sum(each < axis for each in reduced)


# How an axis goes on through operators that commute with positive factors per channel.
_PASSES: dict[str, Callable[[ir.Node, int, int], int]] = {
    "Abs": _same,
    "Add": _with_constant,
    "AveragePool": _same,
    "Div": _divided,
    "Dropout": _same,
    "Flatten": _reshaped,
    "GlobalAveragePool": _same,
    "GlobalMaxPool": _same,
    "Identity": _same,
    "LeakyRelu": _same,
    "MaxPool": _same,
    "Mul": _with_constant,
    "Neg": _same,
    "Pad": _padded,
    "PRelu": _same,
    "ReduceMax": _averaged,
    "ReduceMean": _averaged,
    "ReduceSum": _averaged,
    "Relu": _same,
    "Reshape": _reshaped,
    "Squeeze": _reshaped,
    "Sub": _with_constant,
    "Transpose": _moved,
    "Unsqueeze": _reshaped,
}


def _rank(value: ir.Value | None) -> int | None:
    return None if value is None or value.shape is None else len(value.shape)


def _size(value: ir.Value, axis: int) -> int | None:
    if value.shape is None or axis >= len(value.shape):
        return None
    size = value.shape[axis]
    return size if isinstance(size, int) else None


def _number(node: ir.Node, name: str, default: int) -> int:
    attribute = node.attributes.get(name)
    return default if attribute is None else attribute.as_int()


def _is_matrix(value: ir.Value | None) -> bool:
    tensor = weight(value)
    return tensor is not None and len(tensor.shape) == 2
