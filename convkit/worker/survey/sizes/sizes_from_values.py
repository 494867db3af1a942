"""Whether the sizes of a graph's results can follow from the values of its inputs at all."""

from collections.abc import Iterable

import onnx_ir as ir

from convkit.worker.graph.graph_traversal import attribute_graphs

# The slots whose values, not only sizes, decide the size of a result; none listed: all of them.
# From ONNX's operator specifications up to opset 23. Reductions take axes since opset 18.
_SIZING_SLOTS: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (),
    "CenterCropPad": (1,),
    "Compress": (),
    "ConstantOfShape": (),
    "DFT": (1, 2),
    "Expand": (1,),
    "HammingWindow": (),
    "HannWindow": (),
    "If": (0,),
    "ImageDecoder": (),
    "Loop": (),
    "MaxUnpool": (1, 2),
    "MelWeightMatrix": (),
    "NonMaxSuppression": (),
    "NonZero": (),
    "OneHot": (1,),
    "Pad": (1, 3),
    "Range": (),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "STFT": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "StringNormalizer": (),
    "StringSplit": (),
    "TfIdfVectorizer": (),
    "Tile": (1, 2),
    "TopK": (1,),
    "Unique": (),
    "Unsqueeze": (1,),
    "Upsample": (1,),
}
_CONTAINERS = ("Sequence", "Optional")
_SIZES = frozenset({"Shape", "Size"})
# Other operators may do anything.
_KNOWN_DOMAINS = frozenset({"", "ai.onnx", "ai.onnx.ml"})


def may_follow_values(graph: ir.Graph) -> bool:
    """Return True if some result's size may depend on the values of the graph's inputs; False only
    if none can. Functions must be inlined.
    """
    from_values: set[ir.Value] = set(graph.inputs)
    return _decides_sizes(graph, from_values)


def _decides_sizes(nodes: Iterable[ir.Node], from_values: set[ir.Value]) -> bool:
    """Return True if a value of `from_values` decides a size; adds those computed from it."""
    for node in nodes:
        drawn = [place for place, value in enumerate(node.inputs) if value in from_values]
        if drawn and _sizes_by(node, drawn):
            return True
        bodies = [
            body for attribute in node.attributes.values() for body in attribute_graphs(attribute)
        ]
        for body in bodies:
            # What goes through a loop, or around it, comes from anywhere.
            from_values.update(body.inputs)
            if _decides_sizes(body, from_values):
                return True
        if (drawn and node.op_type not in _SIZES) or bodies:
            from_values.update(node.outputs)
    return False


def _sizes_by(node: ir.Node, drawn: list[int]) -> bool:
    """Return True if the values at some slots decide the sizes of a node's results."""
    if node.domain not in _KNOWN_DOMAINS or any(kind in node.op_type for kind in _CONTAINERS):
        return True
    if node.op_type.startswith("Reduce"):
        return 1 in drawn
    slots = _SIZING_SLOTS.get(node.op_type)
    return slots is not None and (not slots or bool(set(slots) & set(drawn)))
