"""A model made ready for typing: its own copy, without functions, every value's type known."""

import importlib.util

import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from convkit.worker.graph.graph_session import element_type, open_model
from convkit.worker.graph.graph_traversal import attribute_graphs, free_name
from convkit.worker.graph.one_node_models import one_node
from convkit.worker.graph.onnx_dtypes import onnx_dtype
from convkit.worker.runtime_interface.sessions import ModelRefusedError

# Bytes; shape inference may want to know the values of smaller ones (a Reshape's target).
_SMALL_WEIGHT = 1024


# ONNX has rules for the types of its own; of its classical operators (ai.onnx.ml), for a few.
_ONNX_DOMAINS = ("", "ai.onnx")


class UntypedValueError(ValueError):
    """The types of a graph's values cannot be inferred; the message names the first such value."""


def prepare(model: ir.Model) -> ir.Model:
    """Return a copy of a model with functions inlined, all value types known, and unique value
    names.

    Values in model-local functions have no types in ONNX, and a function may be called with several
    types; once inlined, each call is typed separately. Nodes keep their module path, or inherit the
    call's. Weights are shared with the original, not read. Raises UntypedValueError.
    """
    copy = with_types(model)
    if (node_and_value := _first_untyped(copy)) is not None:
        node, value = node_and_value
        raise UntypedValueError(
            f"the type of {value.name!r} ({node.domain or 'ai.onnx'}.{node.op_type}) is not in the"
            " graph and cannot be inferred; export with value types, or without operators of other"
            " domains"
        )
    return copy


def with_types(model: ir.Model) -> ir.Model:
    """Like `prepare`, but types that cannot be inferred stay unknown."""
    copy = model.clone()
    if copy.functions:
        InlinePass()(copy)
    _make_names_unique(copy)
    for value in copy.graph.initializers.values():
        if value.type is None and value.const_value is not None:
            value.type = ir.TensorType(value.const_value.dtype)
    if _first_untyped(copy) is not None:
        _infer_types(copy)
        while known_to_onnxruntime(copy):
            _infer_types(copy)
        _omit_unread(copy)
    return copy


def inlined(model: ir.Model) -> ir.Model:
    """Return the model, or a copy in which functions are part of the graph."""
    if not model.functions:
        return model
    copy = model.clone()
    InlinePass()(copy)
    return copy


def computed_outputs(model: ir.Model) -> dict[str, ir.Shape]:
    """Return the outputs' shapes as onnx's own inference computes them, whatever the file says of
    them; none where it computes none.
    """
    import onnx

    bare = _bare(model)
    for value in bare.graph.outputs:
        value.shape = None
    try:
        inferred = ir.from_proto(onnx.shape_inference.infer_shapes(ir.to_proto(bare)))
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return {}
    outputs = inferred.graph.outputs
    return {value.name: value.shape for value in outputs if value.name and value.shape is not None}


def _infer_types(model: ir.Model) -> None:
    """Fill in missing types and shapes by onnx's own inference, without passing it the weights."""
    import onnx

    inferred = ir.from_proto(onnx.shape_inference.infer_shapes(ir.to_proto(_bare(model))))
    # onnx-ir's pass for this makes tensors of sequences.
    for ours, theirs in zip(model.graphs(), inferred.graphs(), strict=True):
        found = {value.name: value for value in _values(theirs)}
        for value in _values(ours):
            if value.type is None and value.name in found:
                value.type = found[value.name].type
            if value.shape is None and value.name in found:
                value.shape = found[value.name].shape


def _bare(model: ir.Model) -> ir.Model:
    """Return a copy in which large weights are inputs."""
    bare = model.clone()
    for name, value in list(bare.graph.initializers.items()):
        if (
            value.const_value is not None
            and value.const_value.nbytes > _SMALL_WEIGHT
            and not value.is_graph_input()
        ):
            del bare.graph.initializers[name]
            bare.graph.inputs.append(value)
    return bare


def _omit_unread(model: ir.Model) -> None:
    """Leave out further outputs of nodes that are untyped and that nothing reads: ONNX infers no
    type for the mask of Dropout before opset 10.
    """
    for node in model.graph.all_nodes():
        for value in node.outputs[1:]:
            if value.type is None and not value.uses() and not value.is_graph_output():
                value.name = ""


def _make_names_unique(model: ir.Model) -> None:
    """Rename values of sibling subgraphs that share a name; the main graph's come first and keep
    theirs.
    """
    taken: set[str | None] = {value.name for value in _values(model.graph)}
    for graph in model.graph.subgraphs():
        if graph is model.graph:
            continue
        for value in _values(graph):
            if value.name:
                value.name = free_name(value.name, taken)


def _values(graph: ir.Graph) -> list[ir.Value]:
    made = [value for node in graph for value in node.outputs]
    return list(dict.fromkeys([*graph.inputs, *graph.initializers.values(), *made]))


def _first_untyped(model: ir.Model) -> tuple[ir.Node, ir.Value] | None:
    for node in model.graph.all_nodes():
        for value in node.outputs:
            if value.type is None and value.name:
                return node, value
    return None


def known_to_onnxruntime(model: ir.Model) -> bool:
    """Fill in the types that onnxruntime gives the results of operators that are not ONNX's, if it
    is installed; return whether there were any.
    """
    if importlib.util.find_spec("onnxruntime") is None:
        return False
    found = False
    for node in model.graph.all_nodes():
        lacking = [value for value in node.outputs if value.name and value.type is None]
        if lacking and _can_be_asked(node):
            types = _returned(one_node(node, model, untyped=True))
            for value, dtype in zip((v for v in node.outputs if v.name), types, strict=False):
                if value in lacking and dtype is not None:
                    value.type = ir.TensorType(dtype)
                    found = True
    return found


def _can_be_asked(node: ir.Node) -> bool:
    return (
        node.domain not in _ONNX_DOMAINS
        and all(value is None or value.type is not None for value in node.inputs)
        and not any(list(attribute_graphs(each)) for each in node.attributes.values())
    )


def _returned(model: ir.Model) -> list[ir.DataType | None]:
    """Return the element types of a model's outputs, None for what is no tensor; nothing if
    onnxruntime refuses the model.
    """
    try:
        session = open_model(ir.to_proto(model).SerializeToString())
    except ModelRefusedError:
        return []
    types = [element_type(each) for each in session.get_outputs()]
    return [None if each is None else onnx_dtype(each) for each in types]
