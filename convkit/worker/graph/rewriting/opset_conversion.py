"""An ONNX file's opset changed by ONNX's version converter."""

import onnx
import onnx.version_converter
import onnx_ir as ir

from convkit.worker.job_context import StageFailedError

# Operators whose meaning changed without a change of signature: the opset of the change.
_CHANGED_MEANING = {
    "GroupNormalization": 21,
    "BatchNormalization": 14,
    "Softmax": 13,
    "LogSoftmax": 13,
    "Hardmax": 13,
}
# Bytes. The converter inspects the values of smaller constants (axes, scales); larger ones are
# weights, which it does not need.
_SMALL_WEIGHT = 1024


def convert_opset(model: ir.Model, opset: int) -> ir.Model:
    """Return the model in another opset; raises StageFailedError if ONNX cannot convert it.

    The converter does not change the bodies of If, Loop and Scan, so a model with such a body is
    rejected unless every operator in it is the same in both opsets.
    """
    before = model.opset_imports.get("", opset)
    if before == opset:
        return model
    if changed := _changed_in_bodies(model, before, opset):
        raise StageFailedError(
            f"export.opset: ONNX's version converter does not convert the bodies of If, Loop and"
            f" Scan, and {', '.join(changed)} in them differ between opset {before} and {opset}."
            f" Remove export.opset to keep opset {before}."
        )
    bare = model.clone()
    weights: dict[str, ir.TensorProtocol] = {}
    for name, value in list(bare.graph.initializers.items()):
        tensor = value.const_value
        if tensor is None or tensor.nbytes <= _SMALL_WEIGHT or value.is_graph_input():
            continue
        weights[name] = tensor
        value.type, value.shape = ir.TensorType(tensor.dtype), ir.Shape(tensor.shape)
        del bare.graph.initializers[name]
        bare.graph.inputs.append(value)
    try:
        converted = onnx.version_converter.convert_version(ir.to_proto(bare), opset)
    except Exception as error:  # the converter's C++ raises RuntimeError and its own
        raise StageFailedError(
            f"export.opset: ONNX cannot convert the file from opset {before} to {opset}: {error}."
            f" Remove export.opset to keep opset {before}, or try another one."
        ) from error
    converted.ir_version = max(
        converted.ir_version, onnx.helper.find_min_ir_version_for(converted.opset_import)
    )
    result = ir.from_proto(converted)
    _give_back(result.graph, weights)
    return result


def _give_back(graph: ir.Graph, weights: dict[str, ir.TensorProtocol]) -> None:
    for value in list(graph.inputs):
        if value.name in weights:
            graph.inputs.remove(value)
            value.const_value = weights[value.name]
            graph.register_initializer(value)


def _changed_in_bodies(model: ir.Model, before: int, after: int) -> list[str]:
    """Return the operators in bodies that may mean something else in the other opset."""
    early, late = sorted((before, after))
    bodies = [graph for graph in model.graphs() if graph is not model.graph]
    return sorted(
        {node.op_type for graph in bodies for node in graph if changes_meaning(node, early, late)}
    )


def changes_meaning(node: ir.Node, before: int, after: int) -> bool:
    """Return True if a node of the earlier opset may mean something else in the later one.

    A schema that only accepts more types, or has additional optional inputs and attributes, means
    the same.
    """
    if node.domain != "":
        return False
    try:
        old = onnx.defs.get_schema(node.op_type, before)
        new = onnx.defs.get_schema(node.op_type, after)
    except onnx.defs.SchemaError:
        return True
    if old.since_version == new.since_version:
        return False
    if before < _CHANGED_MEANING.get(node.op_type, 0) <= after or new.deprecated:
        return True
    if [item.name for item in new.inputs[: len(old.inputs)]] != [item.name for item in old.inputs]:
        return True
    required = onnx.defs.OpSchema.FormalParameterOption.Single
    if any(item.option == required for item in new.inputs[len(old.inputs) :]):
        return True
    if any(
        attribute.required
        for name, attribute in new.attributes.items()
        if name not in old.attributes
    ):
        return True
    return any(
        name not in new.attributes
        or str(attribute.default_value) != str(new.attributes[name].default_value)
        or attribute.type != new.attributes[name].type
        for name, attribute in old.attributes.items()
    )
