"""Checks the zero points of a graph's quantizations: TensorRT only supports zero."""

from pathlib import Path

import numpy as np
import onnx_ir as ir

from convkit.findings.model import Finding, Place, Remedy
from convkit.models.graph.loading import load_model
from convkit.models.graph.modules import nodes_with_modules
from convkit.models.graph.traversal import constant_tensor

_QUANTIZING = frozenset({"QuantizeLinear", "DequantizeLinear"})


def check_zero_points(graph: Path) -> list[Finding]:
    """Return T107 if a quantization has a nonzero zero point or an unsigned type."""
    wrong: list[tuple[ir.Node, str, str]] = []
    for node, module in nodes_with_modules(load_model(graph)):
        if (
            node.op_type not in _QUANTIZING
            or len(node.inputs) < 3
            or (point := node.inputs[2]) is None
        ):
            continue
        tensor = constant_tensor(point)
        if tensor is None:
            wrong.append((node, module, "is computed"))
        elif np.any(tensor.numpy().astype(np.int64) != 0):
            wrong.append(
                (node, module, f"is up to {int(np.abs(tensor.numpy().astype(np.int64)).max())}")
            )
        elif tensor.dtype == ir.DataType.UINT8:
            wrong.append((node, module, "has the unsigned type uint8"))
    if not wrong:
        return []
    node, module, why = wrong[0]
    return [
        Finding(
            "T107",
            f"{len(wrong)} quantization nodes have zero points that TensorRT does not support:"
            f" that of {node.name} {why}",
            Place(node=node.name, module=module or None),
            {"nodes": [node.name for node, _, _ in wrong[:100]]},
            Remedy(
                "Quantize symmetrically with a signed type (precision.symmetric: true in a recipe)."
            ),
        )
    ]
