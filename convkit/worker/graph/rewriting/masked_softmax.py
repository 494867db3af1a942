"""Makes fully masked rows of attention match torch.

torch's scaled_dot_product_attention returns zeros for a row whose mask is all False. Its ONNX
translation is meant to do the same: softmax, then IsNaN, then Where(isnan, 0, ...). But it masks
with the smallest finite number instead of minus infinity, so the softmax of a fully masked row is
uniform, never NaN, and the guard has no effect (onnxscript 0.7: a BERT's masked row is off by
0.03). With minus infinity, the guard works, and every other row stays bitwise identical, since exp
returns 0 for both.
"""

import math

import numpy as np
import onnx_ir

from convkit.worker.graph.graph_traversal import add_constant

# Finite numbers below this represent minus infinity, as does the smallest number of a type (-65504
# in float16).
_LIKE_MINUS_INFINITY = -1e30


def mask_with_infinity(model: onnx_ir.Model) -> int:
    """Mask with minus infinity before every softmax that is guarded against NaN; return the number
    of masks changed.
    """
    changed: set[int] = set()
    for node in list(model.graph.all_nodes()):
        if node.op_type == "Softmax" and node.domain == "" and is_guarded(node):
            for mask in _masks_in_front(node):
                if id(mask) not in changed and _replace_constant(mask):
                    changed.add(id(mask))
    return len(changed)


def is_guarded(softmax: onnx_ir.Node) -> bool:
    """Return True if NaN in a softmax's output is replaced: Where(IsNaN(softmax), constant,
    softmax).
    """
    output = softmax.outputs[0]
    return any(
        user.op_type == "IsNaN"
        and any(
            where.op_type == "Where" and len(where.inputs) == 3 and where.inputs[2] is output
            for where in (use.node for use in user.outputs[0].uses())
        )
        for user in (use.node for use in output.uses())
    )


def _masks_in_front(softmax: onnx_ir.Node) -> list[onnx_ir.Node]:
    """Return the Where nodes whose outputs are added to a softmax's input, or are that input."""
    found = []
    pending = [softmax.inputs[0]]
    while pending:
        value = pending.pop()
        node = value.producer() if value is not None else None
        if node is None:
            continue
        if node.op_type == "Where":
            found.append(node)
        elif node.op_type in ("Add", "Unsqueeze", "Expand", "Reshape"):
            pending += node.inputs if node.op_type == "Add" else node.inputs[:1]
    return found


def _replace_constant(mask: onnx_ir.Node) -> bool:
    """Replace a Where's finite stand-in with minus infinity; return True if there was one."""
    for index, value in enumerate(mask.inputs[1:], start=1):
        if value is None or value.const_value is None:
            continue
        dtype = value.const_value.dtype
        if value.const_value.size != 1 or not dtype.is_floating_point():
            continue
        numbers = value.const_value.numpy()
        number = float(numbers.reshape(()))
        if not math.isfinite(number):
            continue
        if number < _LIKE_MINUS_INFINITY or number == float(dtype.min):
            graph = mask.graph
            if not isinstance(graph, onnx_ir.Graph):
                continue
            infinity = np.full(numbers.shape, -np.inf, numbers.dtype)
            name = f"{mask.outputs[0].name}_minus_infinity"
            mask.replace_input_with(index, add_constant(graph, name, infinity))
            return True
    return False
