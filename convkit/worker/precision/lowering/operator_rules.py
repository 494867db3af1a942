"""Which inputs and outputs of an operator may be float16 or bfloat16, from onnx's operator schemas
and a few exceptions.

The schemas define the element types that each slot allows at the model's opset. The exceptions are
slots that allow a low-precision type although their values lose their meaning in it.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Literal

import onnx_ir as ir

from convkit.protocol.contract import DType
from convkit.worker.graph.graph_traversal import is_tensor

# low: has the node's type · float32: stays float32 · any: accepts any type, because its values are
# irrelevant or only re-encoded.
Need = Literal["low", "float32", "any"]

# A quantized tensor's grid is determined by its scale; rounding the scale moves every value by up
# to 127 times its error.
_QUANTIZED = frozenset(
    {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearMatMul", "QLinearConv"}
)
# Positions, not activations: a scale of 1/3 in float16 resizes 3000 to 1000.5.
_FLOAT32_INPUTS: dict[str, frozenset[int]] = {
    "Resize": frozenset({1, 2}),
    "Upsample": frozenset({1}),
}
# The attribute stash_type fixes these to float32, whatever the input's type.
_FLOAT32_OUTPUTS: dict[str, frozenset[int]] = {"LayerNormalization": frozenset({1, 2})}
# Only the shape or class of these inputs' values matters, or they are converted anyway.
_ANY_INPUTS = frozenset(
    {
        "Cast",
        "CastLike",
        "Shape",
        "Size",
        "NonZero",
        "IsNaN",
        "EyeLike",
        "RandomNormalLike",
        "RandomUniformLike",
    }
)


@dataclasses.dataclass(frozen=True)
class OperatorRule:
    """The type that each slot of a node requires when the node is low. `obstacle` explains why the
    whole node must stay float32.
    """

    inputs: tuple[Need, ...]
    outputs: tuple[Need, ...]
    obstacle: str | None = None


def operator_rule(node: ir.Node, opsets: Mapping[str, int], dtype: DType) -> OperatorRule:
    """Return the rule for a node in a low-precision type, for each of its slots."""
    version = opsets.get(node.domain, 0)
    schema = _schema_needs(node.domain, node.op_type, version, dtype)
    kept: Need = "float32"
    float32 = OperatorRule((kept,) * len(node.inputs), (kept,) * len(node.outputs))
    if isinstance(schema, str):
        return dataclasses.replace(float32, obstacle=schema)
    if any(value is not None and not is_tensor(value) for value in (*node.inputs, *node.outputs)):
        return dataclasses.replace(
            float32, obstacle=f"{node.op_type} handles a sequence or an optional"
        )
    slots = (node.inputs, node.outputs)
    inputs, outputs = (_spread(*pair) for pair in zip(schema, map(len, slots), strict=False))
    carries = [
        need
        for value, need in (
            *zip(node.inputs, inputs, strict=True),
            *zip(node.outputs, outputs, strict=True),
        )
        if value is not None and value.dtype == ir.DataType.FLOAT
    ]
    if carries and all(need == "float32" for need in carries):
        return dataclasses.replace(
            float32, obstacle=f"{node.op_type} has no {dtype} form in opset {version}"
        )
    return OperatorRule(inputs, outputs)


@functools.lru_cache(maxsize=1024)
def _schema_needs(
    domain: str, op_type: str, version: int, dtype: DType
) -> tuple[tuple[tuple[Need, ...], bool], tuple[tuple[Need, ...], bool]] | str:
    """Return the requirements of the formal inputs and outputs, each with a flag for whether the
    last one repeats; or the obstacle.
    """
    import onnx

    if op_type in _QUANTIZED:
        return f"{op_type}: quantization scales stay float32"
    try:
        schema = onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return f"{domain or 'ai.onnx'}.{op_type} has no schema in opset {version}"
    tensor_type = f"tensor({dtype})"
    allowed = {
        constraint.type_param_str: constraint.allowed_type_strs
        for constraint in schema.type_constraints
    }

    def need(
        formal: onnx.defs.OpSchema.FormalParameter, index: int, fixed: Mapping[str, frozenset[int]]
    ) -> Need:
        permitted = tensor_type in allowed.get(formal.type_str, [formal.type_str])
        return "low" if permitted and index not in fixed.get(op_type, ()) else "float32"

    def repeats(formals: list[onnx.defs.OpSchema.FormalParameter]) -> bool:
        return (
            bool(formals)
            and formals[-1].option == onnx.defs.OpSchema.FormalParameterOption.Variadic
        )

    inputs = [need(formal, index, _FLOAT32_INPUTS) for index, formal in enumerate(schema.inputs)]
    if op_type in _ANY_INPUTS and inputs[0] == "low":
        inputs[0] = "any"
    outputs = [need(formal, index, _FLOAT32_OUTPUTS) for index, formal in enumerate(schema.outputs)]
    return (tuple(inputs), repeats(schema.inputs)), (tuple(outputs), repeats(schema.outputs))


def _spread(needs: tuple[tuple[Need, ...], bool], count: int) -> tuple[Need, ...]:
    formal, repeats = needs
    if count > len(formal) and repeats:
        formal += (formal[-1],) * (count - len(formal))
    return formal[:count]
