"""Raises a graph's opset, if the later one does not change the meaning of any of its operators."""

import onnx
import onnx_ir as ir

from convkit.worker.context import StageFailedError

# Operators whose meaning changed without a change of signature: the opset of the change.
_CHANGED_MEANING = {
    "GroupNormalization": 21,
    "BatchNormalization": 14,
    "Softmax": 13,
    "LogSoftmax": 13,
    "Hardmax": 13,
}


def raise_opset(model: ir.Model, opset: int) -> int | None:
    """Raise the default opset to at least `opset`; return the previous one if it was lower,
    otherwise None.

    Raises StageFailedError if an operator of the graph differs in the later opset.
    """
    before = model.opset_imports.get("", opset)
    if before >= opset:
        return None
    changed = sorted(
        {node.op_type for node in model.graph.all_nodes() if _differs(node, before, opset)}
    )
    if changed:
        raise StageFailedError(
            f"the quantiser needs opset {opset}, and {', '.join(changed)} of the graph has another"
            f" form there than in {before}; export with export.opset: {opset}"
        )
    model.opset_imports[""] = opset
    return before


def _differs(node: ir.Node, before: int, after: int) -> bool:
    """Return True if a node of the earlier opset may mean something else in the later one.

    A schema that only accepts more types, or has additional optional inputs and attributes, means
    the same.
    """
    if node.domain != "":
        return False
    old, new = onnx.defs.get_schema(node.op_type, before), onnx.defs.get_schema(node.op_type, after)
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
