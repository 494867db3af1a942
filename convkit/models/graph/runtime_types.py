"""Types of values that ONNX cannot infer, because it has no rule for an operator or the operator is
not its own: onnxruntime knows its own, and those of the libraries that a recipe declares. Needs
onnx-ir.
"""

import importlib.util

import onnx_ir as ir

from convkit.models.graph.dtypes import onnx_dtype
from convkit.models.graph.one_node import one_node
from convkit.models.graph.session import element_type, open_model
from convkit.models.graph.traversal import attribute_graphs
from convkit.worker.sessions import ModelRefusedError

# ONNX has rules for the types of its own; of its classical operators (ai.onnx.ml), for a few.
_ONNX_DOMAINS = ("", "ai.onnx")


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
