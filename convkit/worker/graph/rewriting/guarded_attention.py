"""Guards attention against fully masked rows, as torch does.

torch's scaled_dot_product_attention returns zeros for a row whose mask is minus infinity everywhere
(since torch 2.5). Its ONNX translation for masks of floats is a plain softmax, which divides zero
by zero: `nn.MultiheadAttention` and `nn.Transformer`, whose key_padding_mask becomes such a mask,
return NaN for an empty row and, through cross-attention, for whole sequences.
"""

import math
from collections import deque
from collections.abc import Iterator

import onnx_ir

from convkit.worker.graph.graph_traversal import constant_tensor
from convkit.worker.graph.rewriting.masked_softmax import is_guarded

# As torch's exporter records the node of the traced program that an ONNX node comes from.
_ORIGIN = "pkg.torch.onnx.fx_node"
_ATTENTION = "torch.ops.aten.scaled_dot_product_attention"
# Values that are looked at on the way from a mask to the choice of minus infinity.
_FURTHEST = 100
_SIZES = frozenset({"Shape", "Size"})
_KEEPS_VALUE = frozenset({"Identity", "Cast", "CastLike", "Expand", "Reshape", "Unsqueeze"})


def guard_attention(model: onnx_ir.Model) -> int:
    """Replace NaN by zero after each softmax of torch's attention whose mask may be minus infinity
    for a whole row; return how many there are. `model` must be as torch's exporter made it.

    A mask that is chosen by a value of the inputs may be that, a constant one (of the future) not.
    """
    guarded = 0
    for node in list(model.graph.all_nodes()):
        if node.op_type != "Softmax" or _ATTENTION not in node.metadata_props.get(_ORIGIN, ""):
            continue
        added = node.inputs[0].producer() if node.inputs[0] is not None else None
        if added is None or added.op_type != "Add" or is_guarded(node):
            continue
        if not _may_be_infinite(added.inputs[1]):
            continue
        _guard(node)
        guarded += 1
    return guarded


def _may_be_infinite(mask: onnx_ir.Value | None) -> bool:
    """Return True if a Where on the way to a mask chooses minus infinity by the inputs' values."""
    return any(
        node is not None
        and node.op_type == "Where"
        and any(map(_is_minus_infinity, node.inputs[1:]))
        and any(value.is_graph_input() for value, _ in _before(node.inputs[0]))
        for _, node in _before(mask)
    )


def _before(last: onnx_ir.Value | None) -> Iterator[tuple[onnx_ir.Value, onnx_ir.Node | None]]:
    """Yield a value and those that it is computed from, with their nodes, the nearest first; not
    those of which only the size matters.
    """
    pending, seen = deque([last]), set[onnx_ir.Value]()
    while pending and len(seen) < _FURTHEST:
        value = pending.popleft()
        if value is None or value in seen:
            continue
        seen.add(value)
        node = value.producer()
        yield value, node
        if node is not None and node.op_type not in _SIZES:
            pending += node.inputs


def _is_minus_infinity(value: onnx_ir.Value | None) -> bool:
    while value is not None:
        if (constant := constant_tensor(value)) is not None:
            return constant.size == 1 and float(constant.numpy().reshape(())) == -math.inf
        node = value.producer()
        value = node.inputs[0] if node is not None and node.op_type in _KEEPS_VALUE else None
    return False


def _guard(softmax: onnx_ir.Node) -> None:
    """Insert Where(IsNaN(softmax), 0, softmax) after a softmax."""
    raw, graph = softmax.outputs[0], softmax.graph
    assert graph is not None
    undefined = onnx_ir.node("IsNaN", [raw])
    nothing = onnx_ir.node("Constant", [], {"value_float": 0.0})
    like = onnx_ir.node("CastLike", [nothing.outputs[0], raw])
    chosen = onnx_ir.node("Where", [undefined.outputs[0], like.outputs[0], raw])
    chosen.outputs[0].shape, chosen.outputs[0].type = raw.shape, raw.type
    for node in (undefined, nothing, like, chosen):
        node.metadata_props.update(softmax.metadata_props)
    users = [(use.node, use.idx) for use in raw.uses() if use.node not in (undefined, like, chosen)]
    for user, place in users:
        user.replace_input_with(place, chosen.outputs[0])
    graph.insert_after(softmax, [undefined, nothing, like, chosen])
