"""Nodes that compute as in training: dropout that draws, batch norms that take the batch's own
mean.
"""

import onnx_ir as ir

from convkit.findings.model import Finding, Place, Remedy
from convkit.models.graph.provenance import MODULE_KEY, SOURCE_KEY

_MOST_LISTED = 20


def training_mode(model: ir.Model) -> list[Finding]:
    """Return E207 where nodes of a graph are in training mode; one finding, at the first of them."""
    nodes = [node for node in model.graph.all_nodes() if node.domain == "" and _is_training(node)]
    if not nodes:
        return []
    first = nodes[0]
    module = first.metadata_props.get(MODULE_KEY, "")
    where = f" in {module}" if module else ""
    others = f", and {len(nodes) - 1} nodes more" if len(nodes) > 1 else ""
    return [
        Finding(
            "E207",
            f"{first.op_type} {first.name!r}{where} is in training mode{others}: the graph gives"
            " other results than the model in use, and other ones each time where it draws",
            Place(
                node=first.name or None,
                module=module or None,
                source=first.metadata_props.get(SOURCE_KEY) or None,
            ),
            {"nodes": [node.name for node in nodes[:_MOST_LISTED]], "count": len(nodes)},
            Remedy(
                "Call eval() on the model before the export, and give functional.dropout and"
                " functional.batch_norm training=self.training."
            ),
        )
    ]


def _is_training(node: ir.Node) -> bool:
    match node.op_type:
        case "Dropout":
            return (
                len(node.inputs) > 2
                and _may_be_true(node.inputs[2])
                and not _is_zero(node.inputs[1])
            )
        case "BatchNormalization":
            mode = node.attributes.get("training_mode")
            return mode is not None and bool(mode.as_int())
        case _:
            return False


def _may_be_true(value: ir.Value | None) -> bool:
    """Say whether a mode is true or unknown: what the graph computes may be either."""
    if value is None:
        return False
    tensor = ir.convenience.get_const_tensor(value)
    return tensor is None or bool(tensor.numpy().any())


def _is_zero(value: ir.Value | None) -> bool:
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    return tensor is not None and not tensor.numpy().any()
