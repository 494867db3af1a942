"""Models of one node of a graph, to ask a runtime about it alone. Needs onnx-ir."""

import onnx_ir as ir

from convkit.worker.graph.graph_traversal import constant_tensor

# Constants up to this many elements are part of such a model: shapes, axes and scales determine a
# node's behavior. Weights do not.
SMALL = 64


def one_node(node: ir.Node, model: ir.Model, *, untyped: bool = False) -> ir.Model:
    """Return a model of one node of `model`: its operands as inputs of the same types and ranks,
    small constants unchanged.

    Its outputs are the model's, those of unknown type only if `untyped`.
    """
    inputs: dict[ir.Value, ir.Value] = {}
    graph_inputs, initializers = [], []
    for value in node.inputs:
        if value is None or value in inputs:
            continue
        tensor = constant_tensor(value)
        name = f"operand.{len(inputs)}"
        if tensor is not None and tensor.size <= SMALL:
            copy = _named(tensor, name)
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
    returned = [value for value in outputs if value.name and (untyped or value.type is not None)]
    graph = ir.Graph(
        graph_inputs,
        returned,
        nodes=[copy_of_node],
        initializers=initializers,
        opset_imports={"": 1} | dict(model.opset_imports),
        name="probe",
    )
    return ir.Model(graph, ir_version=model.ir_version)


def identity(model: ir.Model) -> ir.Model:
    """Return a model that does nothing, with the opsets and IR version of `model`."""
    given = ir.Value(name="given", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([None]))
    result = ir.Value(name="result", type=ir.TensorType(ir.DataType.FLOAT))
    graph = ir.Graph(
        [given],
        [result],
        nodes=[ir.Node("", "Identity", [given], outputs=[result], name="probe")],
        opset_imports={"": 1} | dict(model.opset_imports),
        name="probe",
    )
    return ir.Model(graph, ir_version=model.ir_version)


def _named(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    """Return a constant under another name. onnx-ir serializes texts from their own class only."""
    if tensor.dtype is ir.DataType.STRING:
        return ir.StringTensor(tensor.numpy(), shape=tensor.shape, name=name)
    return ir.tensor(tensor.numpy(), dtype=tensor.dtype, name=name)


def _anonymous(shape: ir.Shape | None) -> ir.Shape | None:
    """Return a shape with the same rank and fixed sizes: shared symbols would tie operands
    together.
    """
    if shape is None:
        return None
    return ir.Shape([dimension if isinstance(dimension, int) else None for dimension in shape])
