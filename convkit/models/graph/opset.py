"""An ONNX file's opset changed by ONNX's version converter."""

import onnx
import onnx.version_converter
import onnx_ir as ir

from convkit.worker.context import StageFailedError

# Bytes. The converter looks at the values of smaller constants (axes, scales); larger ones are
# weights, which it need not be given.
_SMALL_WEIGHT = 1024


def convert_opset(model: ir.Model, opset: int) -> ir.Model:
    """Return the model in another opset; raises StageFailedError where ONNX cannot convert it.

    The converter leaves the bodies of If, Loop and Scan as they are, so a model with such a body is
    refused unless every operator in it is the same in both opsets.
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
    """Return the operators in bodies whose schema differs between two opsets."""
    bodies = [graph for graph in model.graphs() if graph is not model.graph]
    kinds = {node.op_type for graph in bodies for node in graph if node.domain == ""}
    return sorted(kind for kind in kinds if _since(kind, before) != _since(kind, after))


def _since(kind: str, opset: int) -> int | None:
    try:
        return int(onnx.defs.get_schema(kind, opset).since_version)
    except onnx.defs.SchemaError:
        return None
