"""Compares the types and shapes declared in a file with those inferred from its operators."""

from pathlib import Path

import onnx

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.graph.lint.graph_nodes import name_of
from convkit.worker.graph.lint.onnx_checker import without_external

# Bytes. Shape inference needs the file in memory; larger files have external weights anyway.
_LARGEST = 1 << 30


def check(model: onnx.ModelProto, path: Path) -> list[Finding]:  # noqa: ARG001
    """Return E236 for each value whose declared type or shape contradicts its node's.

    A wrong element type is an error, since runtimes reject it. Sizes are hints for runtimes' memory
    planning: a warning. Sizes unknown on either side contradict nothing.
    """
    if model.ByteSize() > _LARGEST:
        return []
    bare = without_external(model)
    declared = {each.name: each for each in (*bare.graph.value_info, *bare.graph.output)}
    outputs = {each.name for each in bare.graph.output}
    del bare.graph.value_info[:]
    for output in bare.graph.output:
        output.ClearField("type")
    try:
        inferred = onnx.shape_inference.infer_shapes(bare, data_prop=True)
    except (onnx.shape_inference.InferenceError, ValueError, RuntimeError):
        return []  # inconclusive if inference fails; the runtime's type check follows
    producers = {name: node for node in bare.graph.node for name in node.output}
    findings = []
    for value in (*inferred.graph.value_info, *inferred.graph.output):
        if value.name not in declared or value.name not in producers:
            continue
        contradiction = _contradiction(declared[value.name].type, value.type)
        if contradiction is not None:
            findings.append(
                _finding(
                    value.name,
                    contradiction,
                    producers[value.name],
                    is_output=value.name in outputs,
                )
            )
    return findings


def _contradiction(said: onnx.TypeProto, found: onnx.TypeProto) -> tuple[str, str, bool] | None:
    """Return the declared and the computed type or shape, and whether the type is wrong."""
    if not (said.HasField("tensor_type") and found.HasField("tensor_type")):
        return None
    own, right = said.tensor_type, found.tensor_type
    if own.elem_type and right.elem_type and own.elem_type != right.elem_type:
        return _type(own.elem_type), _type(right.elem_type), True
    if not (own.HasField("shape") and right.HasField("shape")):
        return None
    first, second = own.shape.dim, right.shape.dim
    sizes = zip(first, second, strict=False)
    if len(first) != len(second) or any(
        a.HasField("dim_value") and b.HasField("dim_value") and a.dim_value != b.dim_value
        for a, b in sizes
    ):
        return _shape(own.shape), _shape(right.shape), False
    return None


def _type(code: int) -> str:
    return str(onnx.TensorProto.DataType.Name(code)).lower()


def _shape(shape: onnx.TensorShapeProto) -> str:
    sizes = [
        str(each.dim_value) if each.HasField("dim_value") else each.dim_param or "?"
        for each in shape.dim
    ]
    return f"[{', '.join(sizes)}]"


def _finding(
    name: str, contradiction: tuple[str, str, bool], node: onnx.NodeProto, *, is_output: bool
) -> Finding:
    said, found, is_type = contradiction
    what = "output" if is_output else "value"
    message = (
        f"the {what} {name!r} is declared as {said}, and {node.op_type}"
        f" {name_of(node)} computes {found}"
    )
    place = Place(tensor=name, node=name_of(node))
    remedy = Remedy("Remove the wrong entry of value_info, or infer the shapes of the file again.")
    if is_type:
        return Finding("E236", message, place, remedy=remedy)
    return Finding("E236", message, place, remedy=remedy, severity="warning")
