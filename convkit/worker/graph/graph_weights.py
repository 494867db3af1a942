"""A graph's weights: their names, and each of them stored once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir

from convkit.worker.graph.duplicate_weights import (
    Content,
    ContentIndex,
    array_content,
    sampled_places,
)
from convkit.worker.graph.graph_traversal import constant_tensor, free_name
from convkit.worker.process.mapped_pages import PageBudget

if TYPE_CHECKING:
    import torch

# Below this, looking for an equal weight costs more than it saves.
_SMALL_BYTES = 256


def strip_wrapper(model: onnx_ir.Model, wrapper: str) -> None:
    """Rename initializers to their names in the original's state dict: without `wrapper` and its
    dot.

    If the name is already used elsewhere in the graph, the initializer keeps its own. Sorts the
    initializers by name.
    """
    graph = model.graph
    taken = _names(graph)
    for value in list(graph.initializers.values()):
        name = value.name.removeprefix(f"{wrapper}.") if wrapper else value.name
        if name != value.name and name not in taken:
            _rename(graph, value, name)
    _sort(graph)


def name_transposed(model: onnx_ir.Model, state: Mapping[str, "torch.Tensor"]) -> None:
    """Name matrices that an exporter transposed after the original's: `query.weight.T` in place of
    `val_47`.

    Exporters number them, so that every release has other names for the same weights. Sorts the
    initializers by name.
    """
    graph = model.graph
    numbered = [
        value
        for name, value in graph.initializers.items()
        if name not in state and value.const_value is not None and len(value.const_value.shape) == 2
    ]
    wanted = {
        tuple(value.const_value.shape)
        for value in numbered
        if value.const_value.nbytes >= _SMALL_BYTES
    }
    pages = PageBudget()
    originals: ContentIndex[str] = ContentIndex()
    for name, tensor in state.items():
        if tensor.dim() == 2 and tuple(tensor.shape)[::-1] in wanted:
            pages.enforce()
            originals.add(_torch_content(tensor.t()), name)
    taken = _names(graph)
    for value in numbered:
        pages.enforce()
        shape = tuple(value.const_value.shape)
        # An exporter transposes by a view of the original's own memory.
        stays = isinstance(getattr(value.const_value, "raw", None), np.ndarray)
        found = originals.find(array_content(shape, value.const_value.numpy, stays=stays))
        if found is not None and f"{found}.T" not in taken:
            taken.add(f"{found}.T")
            _rename(graph, value, f"{found}.T")
    _sort(graph)


def _torch_content(tensor: "torch.Tensor") -> Content:
    shape = tuple(tensor.shape)
    sample = tensor[sampled_places(shape)]
    size = tensor.element_size()
    memory = tensor.data_ptr(), tuple(size * stride for stride in tensor.stride()), size
    return Content(shape, _torch_bytes(sample).tobytes(), lambda: _torch_bytes(tensor), memory)


def _torch_bytes(tensor: "torch.Tensor") -> np.ndarray:
    import torch

    # Flat first: a dimension of size 1 may have any stride.
    array: np.ndarray = tensor.contiguous().reshape(-1).view(torch.uint8).numpy()
    return array


def _rename(graph: onnx_ir.Graph, value: onnx_ir.Value, name: str) -> None:
    graph.initializers.pop(value.name)
    value.name = name
    if value.const_value is not None:
        value.const_value.name = name
    graph.initializers.add(value)


def _names(graph: onnx_ir.Graph) -> set[str]:
    names = {value.name for value in graph.inputs} | set(graph.initializers)
    return names | {value.name for node in graph.all_nodes() for value in node.outputs}


def _sort(graph: onnx_ir.Graph) -> None:
    values = sorted(graph.initializers.values(), key=lambda value: value.name)
    graph.initializers.clear()
    for value in values:
        graph.initializers.add(value)


def share_weights(model: onnx_ir.Model) -> int:
    """Store equal initializers of the main graph once; return the bytes saved.

    A matrix that is another's transpose (a tied output layer after constant folding) becomes a
    Transpose of it.
    """
    graph = model.graph
    saved = 0
    pages = PageBudget()
    kept: ContentIndex[onnx_ir.Value] = ContentIndex()
    distinct: list[onnx_ir.Value] = []
    outputs = {id(value) for value in graph.outputs}
    inputs = {id(value) for value in graph.inputs}
    for value in list(graph.initializers.values()):
        tensor = value.const_value
        if (
            tensor is None
            or tensor.nbytes < _SMALL_BYTES
            or id(value) in outputs
            or id(value) in inputs
        ):
            continue
        pages.enforce()
        first = kept.add(array_content((tensor.dtype, *tensor.shape), tensor.numpy), value)
        if first is value:
            distinct.append(value)
        else:
            value.replace_all_uses_with(first)
            graph.initializers.pop(value.name)
            saved += tensor.nbytes
    return saved + _share_transposes(graph, distinct, kept)


def _share_transposes(
    graph: onnx_ir.Graph, distinct: Sequence[onnx_ir.Value], kept: ContentIndex[onnx_ir.Value]
) -> int:
    saved = 0
    pages = PageBudget()
    shapes = {
        tuple(value.const_value.shape) for value in distinct if len(value.const_value.shape) == 2
    }
    for value in distinct:
        tensor = value.const_value
        shape = tuple(tensor.shape)
        if (
            len(shape) != 2
            or shape[::-1] not in shapes
            or 1 in shape
            or value.name not in graph.initializers
        ):
            continue
        pages.enforce()
        other = kept.find(array_content((tensor.dtype, *shape[::-1]), _transposed(tensor)))
        # Of the two the one that is looked up by rows (an embedding) stays; both or neither: the
        # first by name.
        if (
            other is None
            or other is value
            or other.name not in graph.initializers
            or not _yields(value, other)
        ):
            continue
        node = onnx_ir.node("Transpose", [other], {"perm": [1, 0]}, name=f"{value.name}_transpose")
        node.outputs[0].name = f"{value.name}_transposed"
        node.outputs[0].type, node.outputs[0].shape = value.type, value.shape
        graph.insert_before(graph[0], node)
        value.replace_all_uses_with(node.outputs[0])
        graph.initializers.pop(value.name)
        saved += tensor.nbytes
    return saved


def _transposed(tensor: onnx_ir.TensorProtocol) -> Callable[[], np.ndarray]:
    return lambda: tensor.numpy().T


def _yields(value: onnx_ir.Value, other: onnx_ir.Value) -> bool:
    by_rows = [any(use.node.op_type == "Gather" for use in one.uses()) for one in (value, other)]
    if by_rows[0] != by_rows[1]:
        return by_rows[1]
    return bool(value.name > other.name)


def lift_weights(model: onnx_ir.Model) -> None:
    """Move the initializers of bodies (If, Loop, Scan) to the main graph, which the bodies see.

    onnxruntime checks a body by itself and then refuses weights beside the file that are hard
    links, as those in a store are.
    """
    taken: set[str | None] = set(_names(model.graph))
    bodies = [graph for graph in model.graphs() if graph is not model.graph]
    taken |= {name for body in bodies for name in (*_names(body),)}
    for body in bodies:
        for name, value in list(body.initializers.items()):
            tensor = value.const_value
            if tensor is None or tensor.nbytes < _SMALL_BYTES or value.is_graph_output():
                continue
            body.initializers.pop(name)
            # Sibling bodies may have used the name, too; the first keeps it.
            value.name = name if name not in model.graph.initializers else free_name(name, taken)
            tensor.name = value.name
            model.graph.initializers.add(value)


def constants(model: onnx_ir.Model) -> Iterator[onnx_ir.TensorProtocol]:
    """Walk every constant of a model: initializers and Constant nodes, including those in functions
    and in the bodies of If, Loop and Scan.
    """
    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                yield value.const_value
        yield from _held_by_nodes(graph)
    for function in model.functions.values():
        yield from _held_by_nodes(function)


def _held_by_nodes(nodes: Iterable[onnx_ir.Node]) -> Iterator[onnx_ir.TensorProtocol]:
    for node in nodes:
        if node.op_type == "Constant" and (tensor := constant_tensor(node.outputs[0])) is not None:
            yield tensor


def count_elements(model: onnx_ir.Model) -> int:
    """Return the number of elements of all constants (see `constants`)."""
    return sum(int(tensor.size) for tensor in constants(model))
