"""Walking, naming and small additions in onnx-ir models, for rewrites."""

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir


def attribute_graphs(attribute: ir.Attr) -> Iterator[ir.Graph]:
    """Walk the graphs that an attribute contains."""
    if attribute.type == ir.AttributeType.GRAPH:
        yield attribute.as_graph()
    elif attribute.type == ir.AttributeType.GRAPHS:
        yield from attribute.as_graphs()


def all_values(model: ir.Model) -> Iterator[ir.Value]:
    """Walk every value of a model, including those of subgraphs."""
    for graph in model.graphs():
        yield from graph.inputs
        yield from graph.initializers.values()
        for node in graph:
            yield from node.outputs


def all_names(model: ir.Model) -> set[str | None]:
    """Return every name in use, of values and nodes."""
    return {value.name for value in all_values(model)} | {
        node.name for node in model.graph.all_nodes()
    }


def constant_tensor(value: ir.Value) -> ir.TensorProtocol | None:
    """Return the tensor of an initializer that callers cannot replace, or of a Constant node."""
    producer = value.producer()
    if producer is None:
        return value.const_value if value.is_initializer() and not value.is_graph_input() else None
    if (
        producer.op_type != "Constant"
        or producer.domain != ""
        or "sparse_value" in producer.attributes
    ):
        return None
    return ir.convenience.get_const_tensor(value)


def set_dtype(value: ir.Value, dtype: ir.DataType) -> None:
    """Change the element type of a tensor, or of a sequence's or optional's content.

    Setting `value.dtype` would change the type object, which copies of a model share.
    """
    value.type = _with_dtype(value.type, dtype)


def is_tensor(value: ir.Value) -> bool:
    """Return True if a value is a tensor, not a sequence or optional (whose `dtype` is that of
    their content).
    """
    return isinstance(value.type, ir.TensorType)


def _with_dtype(kind: ir.TypeProtocol | None, dtype: ir.DataType) -> ir.TypeProtocol:
    if isinstance(kind, ir.SequenceType):
        return ir.SequenceType(_with_dtype(kind.elem_type, dtype))
    if isinstance(kind, ir.OptionalType):
        return ir.OptionalType(_with_dtype(kind.elem_type, dtype))
    return ir.TensorType(dtype)


def free_name(name: str, taken: set[str | None]) -> str:
    """Return a unique name, with a number appended if the name is taken, and reserve it."""
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{name}.{number}"
    taken.add(candidate)
    return candidate


def add_constant(graph: ir.Graph, name: str, values: np.ndarray | ir.TensorProtocol) -> ir.Value:
    """Return a new initializer of a graph, under a name that is free."""
    tensor = ir.tensor(values, name=name) if isinstance(values, np.ndarray) else values
    value = ir.Value(
        name=name,
        type=ir.TensorType(tensor.dtype),
        shape=ir.Shape(list(tensor.shape)),
        const_value=tensor,
    )
    graph.register_initializer(value)
    return value


def cast_node(source: ir.Value, output: ir.Value, taken: set[str | None]) -> ir.Node:
    """Return a Cast of a value to the type of another, which it computes, named after that."""
    assert output.dtype is not None
    to = ir.AttrInt64("to", int(output.dtype))
    name = free_name(f"cast.{output.name}", taken)
    return ir.Node("", "Cast", [source], [to], outputs=[output], name=name)
