"""A resize of floats as products with constant matrices: each axis of its result is a weighted sum
of the elements of that axis.
"""

import numpy as np
import onnx

from convkit.worker.cause.graphs.runnable_graph import Graph, PieceFailedError, Values
from convkit.worker.cause.place.whole_number_forms import Form, made
from convkit.worker.graph.operators.node_builder import NodeBuilder

# How far the products may be from the resize, in parts of its largest value: float32's rounding.
_ROUNDING = 1e-5
# Axes of a batch of rows: batch, channels and length.
_ROWS = 3
# Elements of a matrix beyond which a product is no remedy.
_MOST = 1 << 18


def resize_as_products(graph: Graph, node: onnx.NodeProto, known: Values) -> Form | None:
    """Return a resize as one product for each axis whose size changes; None for other nodes, and
    for a resize that is no weighted sum, or one along other axes than the last two.

    The weights are what the node itself makes of an identity matrix.
    """
    if node.domain or node.op_type not in ("Resize", "Upsample"):
        return None
    name, given = node.output[0], known[node.input[0]]
    result = known[name]
    if given.ndim != result.ndim or given.ndim < 2 or not given.size:
        return None
    changed = [
        axis
        for axis, (before, after) in enumerate(zip(given.shape, result.shape, strict=True))
        if before != after
    ]
    last, above = given.ndim - 1, given.ndim - 2
    if not changed or not set(changed) <= {last, above}:
        return None
    try:
        weights = {axis: _weights(graph, node, known, axis) for axis in changed}
    except PieceFailedError:
        return None
    computed = given.astype(np.float64)
    if last in weights:
        computed = computed @ weights[last].astype(np.float64).T
    if above in weights:
        computed = weights[above].astype(np.float64) @ computed
    off = np.abs(computed - result).max()
    if not off <= _ROUNDING * max(np.abs(result).max(), 1e-30):
        return None
    built, value = NodeBuilder(name), node.input[0]
    if last in weights:
        turned = np.ascontiguousarray(weights[last].T).astype(given.dtype)
        inner = "rows" if above in weights else ""
        value = built.write("MatMul", value, turned, inner=inner)
    if above in weights:
        rows = built.constant("weights", weights[above].astype(given.dtype))
        built.write("MatMul", rows, value)
    return made(built, _text(changed, given.shape, result.shape))


def _weights(graph: Graph, node: onnx.NodeProto, known: Values, axis: int) -> np.ndarray:
    """Return the matrix (result's size, size) with which a resize multiplies an axis. Raises
    PieceFailedError.
    """
    name, given, size = node.output[0], known[node.input[0]], known[node.input[0]].shape[axis]
    if size * known[name].shape[axis] > _MOST:
        raise PieceFailedError("the matrix is too large")
    columns = []
    for place in range(size):
        unit = np.zeros_like(given)
        np.moveaxis(unit, axis, 0)[place] = 1
        fed = {key: values for key, values in known.items() if key != name}
        made = graph.run([name], {**fed, node.input[0]: unit})[name]
        columns.append(np.moveaxis(made, axis, 0).reshape(made.shape[axis], -1)[:, 0])
    return np.stack(columns, 1)


def _text(changed: list[int], before: tuple[int, ...], after: tuple[int, ...]) -> str:
    """Return the products as torch's code."""
    rank = len(before)
    lines, products = [], "x"
    for axis in sorted(changed, reverse=True):
        size, letter = before[axis], "w" if axis == rank - 1 else "v"
        batch = "[None, None]" if rank > _ROWS else "[None]"
        wanted = f"({after[axis]}, {size})" if rank > _ROWS else str(after[axis])
        taken = "[0, 0]" if rank > _ROWS else "[0].T"
        lines.append(f"{letter} = F.interpolate(torch.eye({size}){batch}, {wanted}, ...){taken}")
        products = f"{products} @ w.T" if letter == "w" else f"v @ {products}"
    return (
        f"Write this line as y = {products}, with {' and '.join(lines)}, computed once in __init__"
        " with this line's own mode"
    )
