"""Detects nodes in training mode: active dropout, batch norms that use the batch's own
statistics.
"""

import onnx_ir as ir

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.graph.node_origins import MODULE_KEY, SOURCE_KEY

_MOST_LISTED = 20


def training_mode(model: ir.Model) -> list[Finding]:
    """Return E207 if nodes of a graph are in training mode; one finding, at the first such node."""
    nodes = [node for node in model.graph.all_nodes() if node.domain == "" and _is_training(node)]
    if not nodes:
        return []
    first = nodes[0]
    module = first.metadata_props.get(MODULE_KEY, "")
    where = f" in {module}" if module else ""
    others = f", as are {len(nodes) - 1} more nodes" if len(nodes) > 1 else ""
    return [
        Finding(
            "E207",
            f"{first.op_type} {first.name!r}{where} is in training mode{others}: the graph's"
            " results differ from the model's in eval mode, and random ones differ at every call",
            Place(
                node=first.name or None,
                module=module or None,
                source=first.metadata_props.get(SOURCE_KEY) or None,
            ),
            {"nodes": [node.name for node in nodes[:_MOST_LISTED]], "count": len(nodes)},
            Remedy(
                "Call eval() on the model before the export, and pass training=self.training to"
                " functional.dropout and functional.batch_norm."
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
    """Return True if a mode is true or unknown: the graph may then be in training mode."""
    if value is None:
        return False
    tensor = ir.convenience.get_const_tensor(value)
    return tensor is None or bool(tensor.numpy().any())


def _is_zero(value: ir.Value | None) -> bool:
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    return tensor is not None and not tensor.numpy().any()
