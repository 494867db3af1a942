"""Operators that keep NaN, as ONNX and torch do. onnxruntime's own kernels for a CPU lose it in
maxima, minima and recurrent layers, and what broke a value before them looks sound.
"""

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.graph_traversal import all_names
from convkit.worker.graph.rewriting.node_writer import NodeWriter

_FLOAT = ir.DataType.FLOAT
_LEAST_OPSET = 13  # of a NodeWriter
# By operator, the maximum that says where NaN was among what it reads. Measured with
# onnxruntime 1.31. Its TopK, Hardmax and ThresholdedRelu lose NaN, too, and stay as they are.
_MAXIMA = {
    "MaxPool": "MaxPool",
    "GlobalMaxPool": "GlobalMaxPool",
    "ReduceMax": "ReduceMax",
    "ReduceMin": "ReduceMax",
}
_RECURRENT = frozenset({"GRU", "LSTM", "RNN"})


def with_nan_kept(model: ir.Model) -> ir.Model:
    """Return a float32 model, changed in place, in which these operators keep NaN."""
    opset, names = model.opset_imports.get("", 0), all_names(model)
    for graph in list(model.graphs()) if opset >= _LEAST_OPSET else ():
        for node in list(graph):
            if node.domain == "":
                keep_nan(node, NodeWriter(node, names, opset))
    return model


def keep_nan(node: ir.Node, writer: NodeWriter) -> None:
    """Let a node return NaN where it reads some; a recurrent layer in all that it returns, and a
    pooling only if nothing asks for places.
    """
    given = node.inputs[0] if node.inputs else None
    if given is None or given.dtype != _FLOAT:
        return
    if node.op_type in _RECURRENT:
        broken = writer.op("ReduceMax", [_is_nan(given, writer)], keepdims=0)
    elif node.op_type in _MAXIMA and len(node.outputs) == 1:
        others = [_is_nan(given, writer), *node.inputs[1:]]
        broken = writer.copied(_MAXIMA[node.op_type], others, _FLOAT, [*node.attributes.values()])
    else:
        return
    where = writer.op("Greater", [broken, 0.5])
    nan = writer.constant(np.array(np.nan, np.float32))
    same = writer.node(
        node.op_type, node.inputs, [each.dtype or _FLOAT for each in node.outputs], {}
    )
    maker = same[0].producer()
    assert maker is not None
    for attribute in node.attributes.values():
        maker.attributes.add(attribute)
    found = [writer.op("Where", [where, nan, each]) for each in same]
    wanted = zip(node.outputs, found, strict=True)
    writer.replace([each if before.name else None for before, each in wanted])


def _is_nan(value: ir.Value, writer: NodeWriter) -> ir.Value:
    return writer.cast(writer.op("IsNaN", [value]), _FLOAT)
