"""Which of torch's operations a node of a graph stands for."""

import onnx

# The operations that a node of another name stands for; the others have the node's own name.
_KINDS = {
    "Transpose": ("permute", "transpose", "t"),
    "Concat": ("cat",),
    "Clip": ("clamp", "clamp_min", "clamp_max", "hardtanh"),
    "LayerNormalization": ("native_layer_norm",),
    "MatMul": ("mm", "bmm", "matmul", "addmm"),
    "Gemm": ("mm", "addmm"),
    "Sub": ("sub", "rsub"),
    "ReduceMean": ("mean",),
    "ReduceSum": ("sum",),
    "ReduceMax": ("amax", "max"),
    "Less": ("lt",),
    "LessOrEqual": ("le",),
    "Greater": ("gt",),
    "GreaterOrEqual": ("ge",),
    "Equal": ("eq",),
}


def kinds_of(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the operations, by their names without overload and underscores around."""
    return _KINDS.get(node.op_type, (node.op_type.lower(),))
