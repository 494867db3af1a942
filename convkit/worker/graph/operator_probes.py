"""Builds probes: a one-node model for each distinct operator of a graph. Needs onnx and onnx-ir."""

import base64
import hashlib
from collections.abc import Iterator

import onnx_ir as ir

from convkit.worker.graph.graph_traversal import attribute_graphs, constant_tensor
from convkit.worker.graph.node_modules import nodes_with_modules
from convkit.worker.graph.node_origins import SOURCE_KEY
from convkit.worker.graph.one_node_models import SMALL, identity, one_node
from convkit.worker.graph.onnx_dtypes import contract_dtype
from convkit.worker.graph.typed_graph import with_types
from convkit.worker.runtime_interface.distinct_operators import Operator, Operators


def graph_operators(model: ir.Model) -> Operators:
    """Return a model's distinct operators in graph order, including the bodies of If, Loop and
    Scan, and functions.
    """
    typed = with_types(model)
    found: dict[str, tuple[ir.Node, str, int]] = {}
    for node, module in nodes_with_modules(typed):
        key = _key(node)
        first, path, count = found.get(key, (node, module, 0))
        found[key] = (first, path, count + 1)
    opsets = {
        domain: version for domain, version in typed.opset_imports.items() if version is not None
    }
    operators = tuple(_operator(*entry, typed) for entry in found.values())
    return Operators(_encoded(identity(typed)), typed.ir_version, opsets, operators)


def _key(node: ir.Node) -> str:
    attributes = sorted(
        f"{name}={_attribute_text(attribute)}" for name, attribute in node.attributes.items()
    )
    operands = [_operand_text(value) for value in node.inputs]
    results = [str(value.type) for value in node.outputs]
    return "|".join([node.domain, node.op_type, *operands, "->", *results, *attributes])


def _attribute_text(attribute: ir.Attr) -> str:
    if attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
        return "graph"
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.as_tensor()
        return f"{tensor.dtype}{list(tensor.shape)}"
    return str(attribute.value)


def _operand_text(value: ir.Value | None) -> str:
    if value is None:
        return ""
    rank = len(value.shape) if value.shape is not None else "?"
    tensor = constant_tensor(value)
    small = (
        hashlib.sha256(_content(tensor)).hexdigest()[:8]
        if tensor is not None and tensor.size <= SMALL
        else ""
    )
    return f"{value.type}/{rank}/{small}"


def _content(tensor: ir.TensorProtocol) -> bytes:
    """Return bytes that only equal constants of one type have; texts have no bytes of their own."""
    if tensor.dtype is not ir.DataType.STRING:
        return tensor.tobytes()
    return repr(tensor.numpy().ravel().tolist()).encode()


def _operator(node: ir.Node, module: str, count: int, model: ir.Model) -> Operator:
    unknown = _unknown(node)
    operands = ", ".join(_type_text(value) for value in node.inputs)
    results = ", ".join(_type_text(value) for value in node.outputs)
    return Operator(
        name=f"{node.domain}.{node.op_type}" if node.domain else node.op_type,
        types=f"{operands} -> {results}",
        count=count,
        node=node.name or "",
        module=module,
        source=node.metadata_props.get(SOURCE_KEY, ""),
        probe=_encoded(one_node(node, model)) if unknown is None else None,
        unknown=unknown,
    )


def _unknown(node: ir.Node) -> str | None:
    """Return why a node cannot be probed; None if it can."""
    if any(list(_bodies(node))):
        return "a node with its own body"
    for value in node.inputs:
        if value is not None and value.type is None:
            return f"the type of {value.name!r} is not in the graph and cannot be inferred"
    return None


def _bodies(node: ir.Node) -> Iterator[ir.Graph]:
    for attribute in node.attributes.values():
        yield from attribute_graphs(attribute)


def _type_text(value: ir.Value | None) -> str:
    if value is None:
        return "none"
    if value.dtype is None:
        return "unknown"
    return contract_dtype(value.dtype) or value.dtype.name.lower()


def _encoded(model: ir.Model) -> str:
    return base64.b64encode(ir.to_proto(model).SerializeToString(deterministic=True)).decode(
        "ascii"
    )
