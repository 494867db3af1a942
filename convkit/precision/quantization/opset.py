"""Raises a graph's opset, if the later one does not change the meaning of any of its operators."""

import onnx_ir as ir

from convkit.models.graph.opset import changes_meaning
from convkit.worker.context import StageFailedError


def raise_opset(model: ir.Model, opset: int) -> int | None:
    """Raise the default opset to at least `opset`; return the previous one if it was lower,
    otherwise None.

    Raises StageFailedError if an operator of the graph differs in the later opset.
    """
    before = model.opset_imports.get("", opset)
    if before >= opset:
        return None
    changed = sorted(
        {node.op_type for node in model.graph.all_nodes() if changes_meaning(node, before, opset)}
    )
    if changed:
        raise StageFailedError(
            f"the quantizer needs opset {opset}, and {', '.join(changed)} changed since the graph's"
            f" opset {before}; export with export.opset: {opset}"
        )
    model.opset_imports[""] = opset
    return before
