"""Which pairs of products can saturate, and by how much their sums change.

A processor without VNNI adds the products of two neighbors along the summed axis, and clips the
sum to [-32768, 32767]. With a left side in [0, 255], a pair of weights reaches these limits only if
both have the same sign and are large, so all pairs that can are found from the weights alone; few
of a trained layer's can.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import onnx_ir as ir

from convkit.worker.graph.rewriting.node_writer import NodeWriter

LOWEST, HIGHEST = -(1 << 15), (1 << 15) - 1
_LARGEST_LEFT = 255
_FLOAT, _INT32 = ir.DataType.FLOAT, ir.DataType.INT32
# Pairs per piece of a correction: each piece holds a few tensors of this many numbers per row.
_PER_PIECE = 512


@dataclasses.dataclass(frozen=True)
class Pairs:
    """The pairs that can saturate in each column of weights [K, N]: pair p has the rows 2p, 2p + 1.

    `columns` and `rows` (2p) are parallel, in the order of the columns.
    """

    weights: np.ndarray
    columns: np.ndarray
    rows: np.ndarray

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def share(self) -> float:
        """The share of all pairs."""
        pairs = self.weights.shape[0] // 2 * self.weights.shape[1]
        return len(self) / pairs if pairs else 0.0


def saturating_pairs(weights: np.ndarray) -> Pairs:
    """Return the pairs of weights [K, N], int8, that can saturate with some left side in
    [0, 255].
    """
    whole = weights[: weights.shape[0] // 2 * 2].astype(np.int32)
    first, second = whole[0::2], whole[1::2]
    highest = (np.maximum(first, 0) + np.maximum(second, 0)) * _LARGEST_LEFT
    lowest = (np.minimum(first, 0) + np.minimum(second, 0)) * _LARGEST_LEFT
    columns, pairs = np.nonzero(((highest > HIGHEST) | (lowest < LOWEST)).T)
    return Pairs(weights, columns, 2 * pairs)


def write_correction(
    writer: NodeWriter,
    left: ir.Value,
    pairs: Pairs,
    *,
    axis: int,
    counts: list[ir.Value] | None = None,
) -> ir.Value | None:
    """Return what saturation adds to the sums over `axis` (-1 or -2) of `left`, float32 of whole
    numbers: float32, with the weights' columns in place of that axis. None if no pair can saturate.
    Numbers of saturated pairs, float32, are added to `counts`, if given.

    All numbers are whole and below 2^24, so float32 is exact in any order.
    """
    if not len(pairs):
        return None
    columns = pairs.weights.shape[1]
    parts: list[ir.Value] = []
    order = np.full(columns, -1, np.int64)
    placed = 0
    for group, rows in _pieces(pairs):
        parts.append(_piece(writer, left, pairs.weights, group, rows, axis=axis, counts=counts))
        order[group] = placed + np.arange(len(group))
        placed += len(group)
    if (order < 0).any():  # columns without such a pair: nothing is added
        one = f"Gather(part, [0], axis={axis})"
        parts.append(writer.compute(f"Sub({one}, {one})", part=parts[0]))
        order[order < 0] = placed
    joined = parts[0] if len(parts) == 1 else writer.op("Concat", parts, axis=axis)
    return writer.op("Gather", [joined, writer.constant(order)], axis=axis)


def _pieces(pairs: Pairs) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield columns that have about as many pairs, with the pairs' first rows [columns, most]; -1
    fills up.
    """
    counts = np.bincount(pairs.columns, minlength=pairs.weights.shape[1])
    starts = np.concatenate([[0], np.cumsum(counts)])
    ordered = np.argsort(counts, kind="stable")
    ordered = ordered[counts[ordered] > 0]
    begin = 0
    while begin < len(ordered):
        end = begin + 1
        while end < len(ordered) and _fits(counts, ordered, begin, end):
            end += 1
        group = ordered[begin:end]
        rows = np.full((len(group), counts[group[-1]]), -1, np.int64)
        for place, column in enumerate(group):
            own = pairs.rows[starts[column] : starts[column + 1]]
            rows[place, : len(own)] = own
        yield group, rows
        begin = end


def _fits(counts: np.ndarray, ordered: Sequence[int] | np.ndarray, begin: int, end: int) -> bool:
    """Say whether a column may join a piece: neither too large, nor mostly filled up."""
    most = counts[ordered[end]]
    return bool(most * (end + 1 - begin) <= _PER_PIECE and most <= 2 * counts[ordered[begin]] + 2)


def _piece(
    writer: NodeWriter,
    left: ir.Value,
    weights: np.ndarray,
    columns: np.ndarray,
    rows: np.ndarray,
    *,
    axis: int,
    counts: list[ir.Value] | None,
) -> ir.Value:
    filled = rows < 0
    at = np.where(filled, 0, rows)
    total = None
    for step in (0, 1):
        numbers = np.where(filled, 0, weights[at + step, columns[:, None]]).astype(np.float32)
        if axis == -2:
            numbers = numbers[:, :, None]
        taken = writer.op("Gather", [left, writer.constant(at + step)], axis=axis)
        product = writer.op("Mul", [taken, writer.constant(numbers)])
        total = product if total is None else writer.op("Add", [total, product])
    assert total is not None
    clip = f"Clip(total, {float(LOWEST)}, {float(HIGHEST)})"
    change = writer.compute(f"Sub({clip}, total)", total=total)
    if counts is not None:
        different = writer.cast(writer.cast(change, ir.DataType.BOOL), _FLOAT)
        counts.append(writer.compute("ReduceSum(Reshape(x, [-1]), keepdims=1)", x=different))
    # The new axis of pairs is behind that of the columns. 2^24 / 2^15 = 512 pairs fit float32.
    if rows.shape[1] > 256:
        change = writer.cast(change, _INT32)
    if axis == -1:
        # onnxruntime's ReduceSum keeps an axis of no rows, which a mixture's idle expert has.
        ones = np.ones((rows.shape[1], 1), np.float32 if change.dtype == _FLOAT else np.int32)
        column = writer.op("MatMul", [change, writer.constant(ones)])
        summed = writer.op("Squeeze", [column, [-1]])
    else:
        summed = writer.op("ReduceSum", [change, [axis]], keepdims=0)
    return summed if summed.dtype == _FLOAT else writer.cast(summed, _FLOAT)
