"""Finds whole numbers that a graph computes with in floating point.

Older opsets have no Max, Min or Clip of integers, so converters cast sizes and positions to floats
and back (tf2onnx: `Cast`, `Max`, `Cast`), and models do so on purpose: the logarithm of a distance,
as in T5's buckets. A size may be 2147483647 for "to the end", and float16 holds no whole number
above 2048 exactly. These are not activations, so such steps stay float32.
"""

from collections.abc import Callable

import onnx_ir as ir

from convkit.worker.graph.graph_traversal import constant_tensor

# What computes with each number by itself, or only moves, chooses or reduces numbers.
_KEEPING = frozenset(
    {
        *("Abs", "Add", "Ceil", "Clip", "Concat", "Div", "Exp", "Expand", "Floor", "Gather"),
        *("Identity", "Log", "Max", "Min", "Mod", "Mul", "Neg", "Pow", "ReduceMax", "ReduceMin"),
        *("ReduceProd", "ReduceSum", "Reshape", "Round", "Sign", "Slice", "Sqrt", "Squeeze"),
        *("Sub", "Tile", "Transpose", "Trilu", "Unsqueeze", "Where"),
    }
)
_WHOLE = frozenset(
    getattr(ir.DataType, name)
    for name in ("INT8", "INT16", "INT32", "INT64", "UINT8", "UINT16", "UINT32", "UINT64")
)


def whole_number_steps(model: ir.Model) -> set[ir.Node]:
    """Return the nodes between a cast from whole numbers and a cast back that compute with nothing
    else but constants.
    """
    made: dict[ir.Value, bool] = {}

    def is_made_of_whole(value: ir.Value | None) -> bool:
        return value is None or constant_tensor(value) is not None or made.get(value, False)

    # In the order of the graph, so that what a node reads is known before it; then backwards, so
    # that what reads it is.
    steps = [node for node in model.graph.all_nodes() if _is_step(node, made, is_made_of_whole)]
    kept: set[ir.Node] = set()
    for node in reversed(steps):
        (output,) = node.outputs
        readers = [user for user, _ in output.uses()]
        if readers and not output.is_graph_output() and all(_ends(r, kept) for r in readers):
            kept.add(node)
    return kept


def _is_step(
    node: ir.Node, made: dict[ir.Value, bool], is_made_of_whole: Callable[[ir.Value | None], bool]
) -> bool:
    """Say whether a node computes with whole numbers in float32; notes what it makes of them."""
    if node.domain != "" or len(node.outputs) != 1:
        return False
    output = node.outputs[0]
    if node.op_type == "Cast":
        source = node.inputs[0]
        from_whole = source is not None and source.dtype in _WHOLE
        made[output] = from_whole and output.dtype == ir.DataType.FLOAT
        return False
    if node.op_type not in _KEEPING or output.dtype != ir.DataType.FLOAT:
        return False
    floats = [v for v in node.inputs if v is not None and v.dtype == ir.DataType.FLOAT]
    made[output] = any(made.get(value, False) for value in floats) and all(
        map(is_made_of_whole, floats)
    )
    return made[output]


def _ends(reader: ir.Node, kept: set[ir.Node]) -> bool:
    """Say whether a node that reads a whole number is a step that is kept, or makes an integer."""
    if reader in kept:
        return True
    return reader.domain == "" and reader.op_type == "Cast" and reader.outputs[0].dtype in _WHOLE
