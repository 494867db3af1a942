"""Gives onnxruntime's 4-bit quantizer one weight at a time, and keeps the results in a file.

The quantizer works on a whole model in memory. Its float32 weights alone are four times a 7B
checkpoint in bfloat16.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import onnx
import onnx_ir as ir

# The input that a MatMul's weight is.
_WEIGHT = 1
# Smaller results stay in the model.
_INLINE_BYTES = 1024


class NodeQuantizer(Protocol):
    """What onnxruntime's quantizer of models asks for each node."""

    def quantize(self, node: onnx.NodeProto, graph_stack: list[onnx.GraphProto]) -> Any:  # noqa: ANN401 - a node in old releases, several in new ones
        """Return what replaces a node; add new weights to the graph that has the node's."""


class WeightByWeight:
    """Quantizes nodes of a model that does not hold its weights: they are read from `weights`, by
    name.

    `quantizer` does the work. Its results are appended to `results`, an open file in the folder of
    the model's file, and the model refers to them there.
    """

    def __init__(
        self, quantizer: NodeQuantizer, weights: Mapping[str, ir.TensorProtocol], results: BinaryIO
    ) -> None:
        self._quantizer, self._weights, self._results = quantizer, weights, results

    def quantize(self, node: onnx.NodeProto, graph_stack: list[onnx.GraphProto]) -> Any:  # noqa: ANN401 - what the quantizer returns
        """Return what replaces a node; see `NodeQuantizer.quantize`."""
        name = node.input[_WEIGHT] if len(node.input) > _WEIGHT else ""
        graph, tensor = _initializer(name, graph_stack)
        if graph is None or tensor is None or name not in self._weights:
            return self._quantizer.quantize(node, graph_stack)
        # A message's memory is freed only with the model that it belongs to, so that the weight
        # and its results get a graph of their own.
        alone = onnx.GraphProto()
        weight = alone.initializer.add(name=name, data_type=tensor.data_type, dims=tensor.dims)
        weight.raw_data = self._weights[name].tobytes()
        replaced = self._quantizer.quantize(node, [*graph_stack, alone])
        for result in alone.initializer[1:]:
            graph.initializer.append(self._stored(result))
        return replaced

    def _stored(self, tensor: onnx.TensorProto) -> onnx.TensorProto:
        """Return a tensor that refers to the file, to which its content was appended."""
        content = tensor.raw_data
        if len(content) < _INLINE_BYTES:
            return tensor
        stored = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
        stored.data_location = onnx.TensorProto.EXTERNAL
        place = {
            "location": Path(self._results.name).name,
            "offset": str(self._results.tell()),
            "length": str(len(content)),
        }
        for key, value in place.items():
            stored.external_data.add(key=key, value=value)
        self._results.write(content)
        return stored


def _initializer(
    name: str, graph_stack: list[onnx.GraphProto]
) -> tuple[onnx.GraphProto | None, onnx.TensorProto | None]:
    """Return the innermost graph that has an initializer of that name, and the initializer."""
    for graph in reversed(graph_stack):
        for tensor in graph.initializer:
            if tensor.name == name:
                return graph, tensor
    return None, None
