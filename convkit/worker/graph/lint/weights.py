"""Weights inside a file: of the right size, finite, and read by some node."""

import math
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.graph.lint.graph_nodes import all_nodes, listed, subgraphs

# Exporters leave vectors behind when they fold nodes; a layer has a weight of more axes than one.
_AXES = 2


def check(model: onnx.ModelProto, path: Path) -> list[Finding]:
    """Return E237 for unused weights, and E239 for others with NaN."""
    return [*_unused(model, path), *_not_a_number(model)]


def _unused(model: onnx.ModelProto, path: Path) -> list[Finding]:
    read = _read(model.graph)
    unused = [each for each in model.graph.initializer if each.name not in read]
    large = [each for each in unused if sum(size > 1 for size in each.dims) >= _AXES]
    if not large:
        return []
    names = [str(each.name) for each in large]
    elements = sum(math.prod(each.dims) for each in large)
    return [
        Finding(
            "E237",
            f"{path.name} has {'a weight' if len(names) == 1 else f'{len(names)} weights'} that no"
            f" node reads: {listed(names)} ({elements} elements)",
            Place(tensor=names[0]),
            {"weights": names[:20], "elements": elements},
            Remedy(
                "Check whether a node should read it: a layer may have been lost. Otherwise remove"
                " it from the file."
            ),
        )
    ]


def _read(graph: onnx.GraphProto) -> set[str]:
    """Return the names that something reads: nodes, or the caller as outputs."""
    read = {name for node in all_nodes(graph) for name in node.input}
    read |= {each.name for each in (*graph.output, *graph.input)}
    for node in all_nodes(graph):
        read |= {each.name for inner in subgraphs(node) for each in inner.output}
    return read


def _not_a_number(model: onnx.ModelProto) -> list[Finding]:
    findings = []
    read = _read(model.graph)
    for tensor in model.graph.initializer:
        if tensor.name not in read:
            continue  # its NaN reaches nothing
        if tensor.data_location == onnx.TensorProto.EXTERNAL or tensor.data_type not in _FLOATS:
            continue
        values = numpy_helper.to_array(tensor)
        count = int(np.isnan(values).sum())
        if count:
            findings.append(
                Finding(
                    "E239",
                    f"the weight {tensor.name!r} holds NaN: {count} of {values.size} elements",
                    Place(tensor=tensor.name),
                    {"nan": count, "elements": int(values.size)},
                    Remedy("Load the weights again from a good checkpoint, and export again."),
                )
            )
    return findings


_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
