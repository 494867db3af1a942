"""Attention of rows that a mask hides whole: 0 in torch, as of 2.5, and NaN in OpenVINO, whose
operator is a plain softmax.
"""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino

_ATTENTION = "ScaledDotProductAttention"
_MASK = 3  # its input


def guard_masked_rows(model: "openvino.Model") -> int:
    """Let each attention with a mask that is computed give 0 in rows that it hides whole; return
    how many there are. A row hides all if it is minus infinity, or False, everywhere.
    """
    guarded = 0
    for node in model.get_ordered_ops():
        if node.get_type_name() == _ATTENTION and node.get_input_size() > _MASK:
            guarded += _guard(node)
    return guarded


def _guard(attention: "openvino.Node") -> bool:
    from openvino import opset13

    mask = attention.input_value(_MASK)
    rank = mask.get_partial_shape().rank
    if mask.get_node().get_type_name() == "Constant" or rank.is_dynamic or not rank.get_length():
        return False
    if mask.get_element_type().get_type_name() == "boolean":
        hides = opset13.logical_not(mask)
    else:  # a maximum of minus infinity is the smallest finite number in the CPU's kernel
        hides = opset13.equal(mask, opset13.constant(-math.inf, dtype=mask.get_element_type()))
    hidden = opset13.reduce_logical_and(hides, [-1], keep_dims=True)
    result = attention.output(0)
    readers = list(result.get_target_inputs())
    zero = opset13.constant(0.0, dtype=result.get_element_type())
    kept = opset13.select(hidden, zero, result)
    name = attention.get_friendly_name()  # names of OpenVINO's own making count on and on
    for each, what in ((hides, "hides"), (hidden, "hidden"), (zero, "zero"), (kept, "kept")):
        each.set_friendly_name(f"{name}/{what}")
    for reader in readers:
        reader.replace_source_output(kept.output(0))
    return True
