"""A graph's opset raised, where every operator of the graph means the same in the later one."""

import onnx_ir as ir

from convkit.models.graph.opset import means_otherwise
from convkit.worker.context import StageFailedError


def raise_opset(model: ir.Model, opset: int) -> int | None:
    """Set the default opset to at least `opset`; return what it was where it was lower, else None.

    Raises StageFailedError where an operator of the graph has another form in the later opset.
    """
    before = model.opset_imports.get("", opset)
    if before >= opset:
        return None
    changed = sorted(
        {node.op_type for node in model.graph.all_nodes() if means_otherwise(node, before, opset)}
    )
    if changed:
        raise StageFailedError(
            f"the quantiser needs opset {opset}, and {', '.join(changed)} of the graph has another"
            f" form there than in {before}; export with export.opset: {opset}"
        )
    model.opset_imports[""] = opset
    return before
