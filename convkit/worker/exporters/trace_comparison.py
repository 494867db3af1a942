"""Compares two traces of one model, at different sizes."""

import dataclasses
import itertools
from collections.abc import Iterator

import onnx_ir

# Larger constants are weights; their shapes are compared, but their values belong to the model.
_CONSTANT_BYTES = 1024


@dataclasses.dataclass(frozen=True)
class TraceDifference:
    """Where two graphs diverge: the node, its module path, and the numbers on either side."""

    what: str
    node: str | None
    module: str
    first: tuple[int, ...] = ()
    second: tuple[int, ...] = ()


def first_difference(first: onnx_ir.Model, second: onnx_ir.Model) -> TraceDifference | None:
    """Return the first node or weight in which two graphs differ, or None if they are equal up to
    names.
    """
    for one, other in itertools.zip_longest(_nodes(first), _nodes(second)):
        if one is None or other is None or one.op_type != other.op_type:
            node = one or other
            return TraceDifference(
                f"the node {node.name} ({node.op_type})", node.name, _module(node)
            )
        found = _attribute_difference(one, other) or _input_difference(one, other)
        if found is not None:
            return found
    return None


def open_inferred_sizes(first: onnx_ir.Model, second: onnx_ir.Model) -> None:
    """Leave open each size in the first graph's shapes that the second, traced at other sizes,
    states differently.

    The exporter infers shapes from its example, and states the example's sizes if it knows no
    better: after `Tensor.unflatten`, for one. Equal graphs compute the same at both sizes, so such
    a size is not the graph's. One that both state is kept. The graphs must be equal (see
    `first_difference`).
    """
    for one, other in zip(_nodes(first), _nodes(second), strict=True):
        for value, twin in zip(one.outputs, other.outputs, strict=True):
            if value.shape is None or twin.shape is None:
                continue
            if len(value.shape) != len(twin.shape):
                value.shape = None
                continue
            pairs = zip(value.shape, twin.shape, strict=True)
            value.shape = onnx_ir.Shape(
                [None if isinstance(size, int) and size != same else size for size, same in pairs]
            )


def _nodes(model: onnx_ir.Model) -> Iterator[onnx_ir.Node]:
    yield from model.graph.all_nodes()


def _attribute_difference(one: onnx_ir.Node, other: onnx_ir.Node) -> TraceDifference | None:
    for name in sorted({*one.attributes, *other.attributes}):
        values = [
            _numbers(node.attributes[name].value) if name in node.attributes else None
            for node in (one, other)
        ]
        if values[0] != values[1]:
            return _difference(
                one, f"{name} of the node {one.name} ({one.op_type})", values[0], values[1]
            )
    return None


def _input_difference(one: onnx_ir.Node, other: onnx_ir.Node) -> TraceDifference | None:
    """Compare the constants that two nodes read: shapes of all, values of small ones."""
    for index, (a, b) in enumerate(itertools.zip_longest(one.inputs, other.inputs)):
        tensors = [None if value is None else value.const_value for value in (a, b)]
        values = [None if tensor is None else _numbers(tensor) for tensor in tensors]
        if values[0] != values[1]:
            what = f"the constant input {index} of the node {one.name} ({one.op_type})"
            return _difference(one, what, values[0], values[1])
    return None


def _numbers(value: object) -> object:
    """Return a comparable representation: (shape, elements) of a small tensor, the shape of a large
    one, otherwise the value.
    """
    if isinstance(value, onnx_ir.Graph):
        return None  # its nodes are compared separately
    if isinstance(value, onnx_ir.TensorProtocol):
        shape = tuple(map(int, value.shape))
        if value.nbytes > _CONSTANT_BYTES:
            return shape, None
        return shape, tuple(value.numpy().reshape(-1).tolist())
    if isinstance(value, list | tuple):
        return tuple(value)
    return value


def _difference(node: onnx_ir.Node, what: str, first: object, second: object) -> TraceDifference:
    return TraceDifference(what, node.name, _module(node), _integers(first), _integers(second))


def _integers(value: object) -> tuple[int, ...]:
    if isinstance(value, bool):
        return ()
    if isinstance(value, int) or (isinstance(value, float) and value.is_integer()):
        return (int(value),)
    return tuple(i for item in value for i in _integers(item)) if isinstance(value, tuple) else ()


def _module(node: onnx_ir.Node) -> str:
    """Return the module path in a TorchScript node's name, without the wrapper
    (`/model/encoder/layer.0/Reshape`).
    """
    return ".".join((node.name or "").split("/")[2:-1])
