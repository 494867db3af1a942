"""Builds probes: a one-node model for each distinct operator of a graph. Needs onnx and onnx-ir."""

import base64
import hashlib
from collections.abc import Iterator

import onnx_ir as ir

from convkit.models.graph.dtypes import contract_dtype
from convkit.models.graph.modules import nodes_with_modules
from convkit.models.graph.preparation import with_types
from convkit.models.graph.provenance import SOURCE_KEY
from convkit.models.graph.traversal import attribute_graphs, constant_tensor
from convkit.worker.operators import Operator, Operators

# Constants up to this many elements are part of a probe: shapes, axes and scales determine a node's
# behavior. Weights do not.
_SMALL = 64


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
    versions = dict(typed.opset_imports)
    operators = tuple(_operator(*entry, versions, typed.ir_version) for entry in found.values())
    return Operators(
        _encoded(_empty(versions, typed.ir_version)), typed.ir_version, opsets, operators
    )


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
        hashlib.sha256(tensor.tobytes()).hexdigest()[:8]
        if tensor is not None and tensor.size <= _SMALL
        else ""
    )
    return f"{value.type}/{rank}/{small}"


def _operator(
    node: ir.Node, module: str, count: int, opsets: dict[str, int], ir_version: int
) -> Operator:
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
        probe=_encoded(_probe(node, opsets, ir_version)) if unknown is None else None,
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


def _probe(node: ir.Node, opsets: dict[str, int], ir_version: int) -> ir.Model:
    """Return a one-node model: its operands as inputs of the same types and ranks, small constants
    unchanged.
    """
    inputs: dict[ir.Value, ir.Value] = {}
    graph_inputs, initializers = [], []
    for value in node.inputs:
        if value is None or value in inputs:
            continue
        tensor = constant_tensor(value)
        name = f"operand.{len(inputs)}"
        if tensor is not None and tensor.size <= _SMALL:
            copy = ir.tensor(tensor.numpy(), dtype=tensor.dtype, name=name)
            inputs[value] = ir.Value(name=name, type=value.type, shape=copy.shape, const_value=copy)
            initializers.append(inputs[value])
            continue
        inputs[value] = ir.Value(name=name, type=value.type, shape=_anonymous(value.shape))
        graph_inputs.append(inputs[value])
    outputs = [
        ir.Value(name=f"result.{index}" if value.name else "", type=value.type)
        for index, value in enumerate(node.outputs)
    ]
    copy_of_node = ir.Node(
        node.domain,
        node.op_type,
        [inputs[value] if value is not None else None for value in node.inputs],
        list(node.attributes.values()),
        overload=node.overload,
        outputs=outputs,
        name="probe",
    )
    given = [value for value in outputs if value.name and value.type is not None]
    return _model(graph_inputs, given, [copy_of_node], initializers, opsets, ir_version)


def _anonymous(shape: ir.Shape | None) -> ir.Shape | None:
    """Return a shape with the same rank and fixed sizes: shared symbols would tie operands
    together.
    """
    if shape is None:
        return None
    return ir.Shape([dimension if isinstance(dimension, int) else None for dimension in shape])


def _empty(opsets: dict[str, int], ir_version: int) -> ir.Model:
    given = ir.Value(name="given", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([None]))
    result = ir.Value(name="result", type=ir.TensorType(ir.DataType.FLOAT))
    return _model(
        [given],
        [result],
        [ir.Node("", "Identity", [given], outputs=[result], name="probe")],
        [],
        opsets,
        ir_version,
    )


def _model(
    inputs: list[ir.Value],
    outputs: list[ir.Value],
    nodes: list[ir.Node],
    initializers: list[ir.Value],
    opsets: dict[str, int],
    ir_version: int,
) -> ir.Model:
    graph = ir.Graph(
        inputs,
        outputs,
        nodes=nodes,
        initializers=initializers,
        opset_imports={"": 1} | opsets,
        name="probe",
    )
    return ir.Model(graph, ir_version=ir_version)


def _encoded(model: ir.Model) -> str:
    return base64.b64encode(ir.to_proto(model).SerializeToString(deterministic=True)).decode(
        "ascii"
    )
