"""Runs a graph in float64 from its inputs on, as a reference for what float32 rounds away."""

from collections.abc import Collection, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from convkit.worker.cause.graphs.runnable_graph import (
    VALUELESS,
    Graph,
    PieceFailedError,
    Values,
    reads,
)
from convkit.worker.graph.standard_evaluator import standard_evaluator

_FLOAT, _DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
# Attributes that hold an element type.
_TYPES = ("to", "dtype")


def run_in_float64(graph: Graph, targets: Sequence[str], feeds: Values) -> dict[str, np.ndarray]:
    """Compute targets in float64 from float32 inputs and constants, by onnx's own evaluator.

    What depends on no input's values stays in float32, as a runtime folds it. Raises
    PieceFailedError if the evaluator does not know an operator or fails.
    """
    moving = moving_nodes(graph, feeds)
    nodes = [each for each in graph.nodes if id(each) in moving]
    made = {name for node in nodes for name in node.output}
    read = {name for node in nodes for name in reads(node)} | set(targets)
    if graph.exotic.keys() & read:
        raise PieceFailedError("the graph has constants in a low-precision type")
    given = {name: values for name, values in feeds.items() if name in read}
    given |= graph.run(sorted(read - made - given.keys()), feeds)
    wide = {name: _wide(np.asarray(values)) for name, values in given.items()}
    model = _model(graph, [_wide_node(node) for node in nodes], wide, targets)
    try:
        with np.errstate(all="ignore"):
            found = standard_evaluator(model).run(None, wide)
    except MemoryError:
        raise
    except Exception as error:  # numpy's errors, and the evaluator's, which share no base class
        raise PieceFailedError(str(error)) from error
    return dict(zip(targets, map(np.asarray, found), strict=True))


def moving_nodes(graph: Graph, feeds: Collection[str]) -> set[int]:
    """Return the nodes (by identity) whose results depend on fed values, not on sizes alone."""
    moving: set[str] = set(feeds)
    found = set()
    for node in graph.nodes:
        if node.op_type not in VALUELESS and not moving.isdisjoint(reads(node)):
            found.add(id(node))
            moving.update(name for name in node.output if name)
    return found


def _wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float64) if values.dtype == np.float32 else values


def _wide_node(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return a node that computes in float64, in its subgraphs as well."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for attribute in copy.attribute:
        if attribute.name in _TYPES and attribute.i == _FLOAT:
            attribute.i = _DOUBLE
        if attribute.HasField("t"):
            attribute.t.CopyFrom(_wide_tensor(attribute.t))
        for graph in (attribute.g, *attribute.graphs):
            inner = [_wide_node(each) for each in graph.node]
            constants = [_wide_tensor(each) for each in graph.initializer]
            del graph.node[:], graph.initializer[:], graph.value_info[:]
            graph.node.extend(inner)
            graph.initializer.extend(constants)
    return copy


def _wide_tensor(tensor: onnx.TensorProto) -> onnx.TensorProto:
    if tensor.data_type != _FLOAT:
        return tensor
    return numpy_helper.from_array(_wide(numpy_helper.to_array(tensor)), tensor.name)


def _model(
    graph: Graph, nodes: Sequence[onnx.NodeProto], given: Values, targets: Sequence[str]
) -> onnx.ModelProto:
    inputs = [
        onnx.helper.make_tensor_value_info(
            name, onnx.helper.np_dtype_to_tensor_dtype(values.dtype), None
        )
        for name, values in given.items()
    ]
    outputs = [onnx.helper.make_empty_tensor_value_info(name) for name in targets]
    made = onnx.helper.make_graph(nodes, "float64", inputs, outputs)
    opsets = [onnx.helper.make_opsetid(domain, version) for domain, version in graph.opsets]
    return onnx.helper.make_model(made, opset_imports=opsets, ir_version=graph.ir_version)
