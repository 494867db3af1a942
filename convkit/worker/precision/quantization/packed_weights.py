"""Detects weights that are already quantized: packed into integers, as in GPTQ and similar layers,
or by a quantizer.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.worker.graph.graph_traversal import constant_tensor
from convkit.worker.graph.node_modules import nodes_with_modules

_INTEGERS = frozenset(
    {
        ir.DataType.INT4,
        ir.DataType.UINT4,
        ir.DataType.INT8,
        ir.DataType.UINT8,
        ir.DataType.INT16,
        ir.DataType.UINT16,
        ir.DataType.INT32,
        ir.DataType.UINT32,
        ir.DataType.INT64,
        ir.DataType.UINT64,
    }
)
# Smaller constants are shifts, masks and shapes.
_SMALLEST_WEIGHT = 64
# Operators that multiply by a weight, and the inputs that can be one.
_MULTIPLYING: dict[str, tuple[int, ...]] = {
    "Conv": (1,),
    "ConvTranspose": (1,),
    "Einsum": (0, 1),
    "Gemm": (0, 1),
    "MatMul": (0, 1),
}
# A quantizer's own operators, and the input that is the weight.
_QUANTIZED: dict[str, int] = {
    "ConvInteger": 1,
    "DequantizeLinear": 0,
    "MatMulInteger": 1,
    "MatMulNBits": 1,
    "QGemm": 3,
    "QLinearConv": 3,
    "QLinearMatMul": 3,
}
# Operators that pick elements, and the input that says which: of a table of positions, the numbers
# that are picked are the weight, not their places.
_PICKING = {"Gather": 1, "GatherElements": 1, "GatherND": 1}
_SHOWN = 5


@dataclasses.dataclass(frozen=True)
class PackedWeight:
    """An integer constant that a product uses as a weight."""

    constant: str
    dtype: str
    shape: tuple[int, ...]
    node: str
    operator: str
    module: str


def packed_weights(model: ir.Model) -> tuple[PackedWeight, ...]:
    """Return a graph's integer weights, each with the product that uses it, in graph order.

    A weight is packed if everything between a matrix-sized integer constant and a product (shifts,
    masks, casts, scales) depends only on constants.
    """
    modules = dict(nodes_with_modules(model))
    behind = _integers_behind(model)
    found: dict[str, PackedWeight] = {}
    for node in model.graph:
        inputs = _MULTIPLYING.get(node.op_type, ())
        if node.op_type in _QUANTIZED:
            inputs = (_QUANTIZED[node.op_type],)
        for index in inputs:
            value = node.inputs[index] if index < len(node.inputs) else None
            for constant in behind.get(value, ()) if value is not None else ():
                tensor = constant_tensor(constant)
                assert tensor is not None
                name = constant.name or ""
                shape = tuple(tensor.shape.numpy())
                module = modules.get(node, "")
                found.setdefault(
                    name,
                    PackedWeight(
                        name,
                        tensor.dtype.name.lower(),
                        shape,
                        node.name or "",
                        node.op_type,
                        module,
                    ),
                )
    return tuple(found.values())


def _integers_behind(model: ir.Model) -> dict[ir.Value, tuple[ir.Value, ...]]:
    """Return, for each value that depends only on constants, the integer matrices it is computed
    from.
    """
    behind: dict[ir.Value, tuple[ir.Value, ...]] = {}

    def look(value: ir.Value) -> tuple[ir.Value, ...] | None:
        if value in behind:
            return behind[value]
        tensor = constant_tensor(value)
        if tensor is None:
            return None
        is_weight = (
            tensor.dtype in _INTEGERS
            and len(tensor.shape) >= 2
            and tensor.size >= _SMALLEST_WEIGHT
            and not _are_places(tensor.numpy())
        )
        behind[value] = (value,) if is_weight else ()
        return behind[value]

    for node in model.graph:
        parts = [look(value) for value in node.inputs if value is not None]
        if node.op_type == "Constant" or any(part is None for part in parts):
            continue
        if node.op_type in _PICKING:
            parts[_PICKING[node.op_type]] = ()
        made = tuple(dict.fromkeys(value for part in parts if part is not None for value in part))
        for value in node.outputs:
            behind[value] = made
    return behind


def _are_places(values: np.ndarray) -> bool:
    """Say whether values count along one axis and repeat along all others, as coordinates do."""
    return any(
        np.array_equal(values, np.broadcast_to(_line(values, axis), values.shape))
        for axis in range(values.ndim)
    )


def _line(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the first values along an axis, with one along all others."""
    return values[tuple(slice(None if each == axis else 1) for each in range(values.ndim))]


def packed_findings(model: ir.Model) -> list[Finding]:
    """Return Q103 if the model contains integer weights: quantizing the rest would miss or damage
    them.
    """
    weights = packed_weights(model)
    if not weights:
        return []
    modules = list(dict.fromkeys(weight.module or weight.node for weight in weights))
    shown = ", ".join(modules[:_SHOWN]) + (
        f" and {len(modules) - _SHOWN} more" if len(modules) > _SHOWN else ""
    )
    first = weights[0]
    return [
        Finding(
            "Q103",
            f"{len(weights)} weights are already quantized ({_kinds(weights)}), in {shown}:"
            " quantizing again would skip them, or quantize the constants that unpack them",
            Place(tensor=first.constant, node=first.node or None, module=first.module or None),
            {
                "weights": [
                    {
                        "constant": w.constant,
                        "dtype": w.dtype,
                        "shape": list(w.shape),
                        "module": w.module,
                    }
                    for w in weights[:50]
                ],
                "count": len(weights),
            },
            Remedy(
                "Quantize the original float32 model, or build this one as it is.",
                {"target.precision": "float32"},
            ),
        )
    ]


def _kinds(weights: Sequence[PackedWeight]) -> str:
    return ", ".join(sorted({weight.dtype for weight in weights}))
