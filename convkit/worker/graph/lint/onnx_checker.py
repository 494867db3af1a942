"""What ONNX's own checker finds beyond the other checks, with its message appended."""

from collections.abc import Iterator
from pathlib import Path

import onnx

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.graph.lint.graph_nodes import name_of, title
from convkit.worker.graph.lint.opsets import import_assumed, move_extensions

# The first IR version whose weights need not be inputs, too.
CONSTANT_WEIGHTS = 4


def check(model: onnx.ModelProto, path: Path) -> list[Finding]:
    """Return E238 if the checker rejects the file; external weights are not checked.

    (The checker rejects a file with several hard links, as in a store and a run's folder, as an
    attack.)
    """
    proto = checkable(model)
    try:
        onnx.checker.check_model(proto)
    except onnx.checker.ValidationError as error:
        node = _refused(proto)
        where = title(node) if node is not None else path.name
        text = " ".join(str(error).split())
        return [
            Finding(
                "E238",
                f"{path.name} is not a valid ONNX model: {where} does not follow the standard."
                f" ONNX's checker says: {text}",
                Place(node=name_of(node) if node is not None else None, source=path.name),
                remedy=Remedy("Correct what the checker names, or export the file again."),
            )
        ]
    return []


def _refused(model: onnx.ModelProto) -> onnx.NodeProto | None:
    """Return the first node that the checker refuses by itself."""
    context = onnx.checker.C.CheckerContext()
    context.ir_version = model.ir_version
    context.opset_imports = {entry.domain: entry.version for entry in model.opset_import}
    for node in model.graph.node:
        try:
            onnx.checker.check_node(node, context)
        except onnx.checker.ValidationError:
            return node
    return None


def checkable(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy for the checker: without external weights, and with what runtimes accept beyond
    the standard: operators of their own, domains that they import themselves, graphs without a
    name, inputs and outputs of any rank, and, in files of any IR version, weights that callers
    cannot replace.
    """
    proto = without_external(model)
    move_extensions(proto)
    import_assumed(proto)
    name_graphs(proto)
    for value in (*proto.graph.input, *proto.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    proto.ir_version = max(proto.ir_version, CONSTANT_WEIGHTS)
    return proto


def check_types(path: Path) -> None:
    """Check a file strictly, with its types, except for what `checkable` allows and for shapes that
    are only claims: those of intermediate values, and at the borders of bodies. Files by others
    contain wrong ones, which runtimes do not use.

    Raises onnx.checker.ValidationError or onnx.shape_inference.InferenceError.
    """
    proto = checkable(onnx.load(path, load_external_data=False))
    for place, graph in enumerate(_graphs(proto.graph)):
        _omit_described_weights(graph)
        borders = (*graph.input, *graph.output) if place > 0 else ()
        for value in (*graph.value_info, *borders):
            if value.type.HasField("tensor_type"):
                value.type.tensor_type.ClearField("shape")
    onnx.checker.check_model(proto, full_check=True)


def _omit_described_weights(graph: onnx.GraphProto) -> None:
    """Remove what a graph says about its inputs and weights beside them: they have shapes, which a
    second description without one would hide from the inference.
    """
    known = {each.name for each in (*graph.input, *graph.initializer)}
    others = [value for value in graph.value_info if value.name not in known]
    del graph.value_info[:]
    graph.value_info.extend(others)


def name_graphs(model: onnx.ModelProto) -> None:
    """Name a graph and bodies that have no name, in place: the standard wants one, runtimes do
    not.
    """
    for graph in _graphs(model.graph):
        graph.name = graph.name or "graph"


def without_external(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which weights of other files are inputs.

    A body sees the inputs of the graph around it, and may have none of its own: what its weights
    become are the main graph's.
    """
    proto = onnx.ModelProto()
    proto.CopyFrom(model)
    given = {value.name for value in proto.graph.input}
    for graph in _graphs(proto.graph):
        apart = [each for each in graph.initializer if _is_external(each)]
        inside = [each for each in graph.initializer if not _is_external(each)]
        del graph.initializer[:]
        graph.initializer.extend(inside)
        proto.graph.input.extend(
            onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
            for tensor in apart
            if tensor.name not in given
        )
        given |= {tensor.name for tensor in apart}
    return proto


def _is_external(tensor: onnx.TensorProto) -> bool:
    return bool(tensor.data_location == onnx.TensorProto.EXTERNAL)


def _graphs(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Walk a graph and the bodies of its nodes."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for body in (*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])):
                yield from _graphs(body)
