"""Takes an ONNX file made elsewhere as it is: nothing is traced, no node is changed."""

from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir

from convkit.models.exporters.job import UnexportableError
from convkit.models.graph.contract import load_graph
from convkit.models.graph.external_data import external_data_findings
from convkit.models.graph.loading import map_weights
from convkit.worker.context import StageFailedError


def adopt(path: Path) -> onnx_ir.Model:
    """Load a model; raises StageFailedError for a damaged one, UnexportableError where weights are
    not all there.
    """
    if not path.is_file():
        raise StageFailedError(f"model.onnx: there is no file {path}")
    model = load_graph(path)
    if not model.graph.outputs:
        raise StageFailedError(f"model.onnx: {path.name} is no model: its graph has no outputs")
    if findings := external_data_findings(model, path.parent):
        raise UnexportableError(findings)
    check_structure(path, "model.onnx")
    map_weights(model, path.parent)
    return model


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Walk a graph and the bodies of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _graphs(body)


def check_structure(path: Path, key: str) -> None:
    """Raise StageFailedError unless ONNX's own checker finds the file well formed; external weights
    are not looked at.

    (The checker takes a file with several hard links, as a store and a run's folder have, for an
    attack.)
    """
    proto = onnx.load(path, load_external_data=False)
    given = {value.name for value in proto.graph.input}
    for graph in _graphs(proto.graph):
        external = [
            tensor
            for tensor in graph.initializer
            if tensor.data_location == onnx.TensorProto.EXTERNAL
        ]
        inside = [
            tensor
            for tensor in graph.initializer
            if tensor.data_location != onnx.TensorProto.EXTERNAL
        ]
        del graph.initializer[:]
        graph.initializer.extend(inside)
        # A body sees the inputs of the graph around it, and may have none of its own.
        proto.graph.input.extend(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            for tensor in external
            if tensor.name not in given
        )
        given |= {tensor.name for tensor in external}
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        raise StageFailedError(f"{key}: {path.name} is not a valid ONNX model: {error}") from error
