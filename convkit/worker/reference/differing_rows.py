"""Rows of large tables that a file's graph and the original hold differently.

No case reads all rows of a vocabulary; but the original has the tensor, so nothing need be run to
know which of them to read. A table without a namesake is the original's, or a part of it, of which
most rows are equal: as they are, or after a scale that an exporter has folded into its columns. A
table of whole numbers that no tensor equals is its own rule: most numbers follow the ones before.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx
    import torch

# A table of fewer rows is read as a whole by the ladder's other cases.
_FEWEST_ROWS = 32
# What the same table has of equal rows, and up to how many differing ones are tried.
_MOST_EQUAL, _MOST_ROWS = 0.5, 256
# Of whole numbers, how many follow a rule that is one.
_MOST_REGULAR = 0.9
# Relative to a table's largest value: what another tool's rounding leaves.
_ROUNDING = 1e-5
# onnx.TensorProto's types: float32, float16, float64; int32 and int64.
_FLOATS, _WHOLE = (1, 10, 11), (6, 7)
# Rows from which scales are estimated, and those that are looked for in a table of another length.
_SAMPLED, _SOUGHT = 1024, 3


def differing_rows(graph: Path, state: Mapping[str, "torch.Tensor"]) -> tuple[int, ...]:
    """Return the numbers of the rows in which a graph's tables differ from the original's, at most
    256 of them.
    """
    import onnx

    known = [
        tensor.detach()
        for tensor in state.values()
        if tensor.ndim and tensor.shape[0] >= _FEWEST_ROWS and not tensor.is_complex()
    ]
    floats = [tensor for tensor in known if tensor.is_floating_point()]
    numbers = [tensor.numpy() for tensor in known if not tensor.is_floating_point()]
    found: dict[int, None] = {}
    model = onnx.load(graph, load_external_data=False)
    for values in _tables(model.graph, graph.parent):
        if values.dtype.kind == "f":
            found.update(dict.fromkeys(_rows(values, floats)))
        elif not any(np.array_equal(values, each) for each in numbers):
            found.update(dict.fromkeys(_irregular(values)))
        if len(found) > _MOST_ROWS:
            break
    return tuple(found)[:_MOST_ROWS]


def _tables(graph: "onnx.GraphProto", folder: Path) -> Iterator[np.ndarray]:
    """Yield the tensors of a graph and its bodies that have as many rows as a table, those of
    constant nodes, too, and those of which columns are looked up, transposed.
    """
    from onnx import numpy_helper

    tensors, bodies = list(graph.initializer), []
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.HasField("t"):
                tensors.append(attribute.t)
            if attribute.HasField("g"):
                bodies.append(attribute.g)
    for tensor in filter(_is_table, tensors):
        yield numpy_helper.to_array(tensor, str(folder))
    by_column = {
        node.input[0]
        for node in graph.node
        if node.op_type == "Gather" and any(each.i in (1, -1) for each in node.attribute)
    }
    for tensor in tensors:
        if tensor.name in by_column and len(tensor.dims) == 2 and tensor.data_type in _FLOATS:
            yield numpy_helper.to_array(tensor, str(folder)).T
    for body in bodies:
        yield from _tables(body, folder)


def _is_table(tensor: "onnx.TensorProto") -> bool:
    rows = tensor.dims[0] if len(tensor.dims) and 0 not in tensor.dims else 0
    whole = tensor.data_type in _WHOLE and len(tensor.dims) == 1
    return rows >= _FEWEST_ROWS and (whole or tensor.data_type in _FLOATS)


def _rows(stored: np.ndarray, tables: Sequence["torch.Tensor"]) -> Iterator[int]:
    """Yield the rows that differ from the table most like it; none if it equals one, or none is."""
    nearest: np.ndarray | None = None
    first = 0
    alike = [(each, stored) for each in tables if each.shape[1:] == stored.shape[1:]]
    alike += [  # another tool may store it in another shape
        (each, stored.reshape(each.shape))
        for each in tables
        if each.shape[1:] != stored.shape[1:] and each.numel() == stored.size
    ]
    for tensor, values in sorted(alike, key=lambda pair: len(pair[0]) != len(pair[1])):
        table = tensor.float().numpy()
        start = _start(values, table)
        if start is None:
            continue
        low, high = max(start, 0), min(start + len(values), len(table))
        mine, expected = values[low - start : high - start], table[low:high]
        different = _different(mine, expected.astype(values.dtype, copy=False), _ROUNDING)
        if different.mean() > 1 - _MOST_EQUAL:
            different = _different_scaled(mine, expected)
        if not different.any():
            if len(mine) == len(values):
                return
            continue  # its other rows are of another table
        if nearest is None or different.sum() < nearest.sum():
            nearest, first = different, low
    if nearest is not None and nearest.mean() <= 1 - _MOST_EQUAL:
        yield from map(int, first + np.flatnonzero(nearest))


def _start(values: np.ndarray, table: np.ndarray) -> int | None:
    """Return the row of a table that another's first is; None if they have nothing in common."""
    if len(values) == len(table):
        return 0
    flat, rows = table.reshape(len(table), -1), values.reshape(len(values), -1)
    firsts = flat[:, 0].astype(values.dtype, copy=False)
    for row in np.linspace(0, len(rows) - 1, _SOUGHT, dtype=int):
        places = np.flatnonzero(firsts == rows[row, 0])
        equal = (flat[places].astype(values.dtype, copy=False) == rows[row]).all(axis=1)
        places = places[equal]
        if len(places) == 1:
            return int(places[0] - row)
    return None


def _different_scaled(values: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return which rows differ by more than a factor of each column."""
    step = max(1, len(values) // _SAMPLED)
    one, other = values[::step].astype(np.float64), expected[::step].astype(np.float64)
    full = (other != 0).reshape(len(other), -1).all(axis=1)  # zeros have any factor
    if not full.any():
        return np.ones(len(values), bool)
    factors = np.median(one[full] / other[full], axis=0)
    rounding = max(_ROUNDING, 2 * float(np.finfo(values.dtype).eps))
    return _different(values, (expected * factors).astype(values.dtype), rounding)


def _different(values: np.ndarray, expected: np.ndarray, rounding: float) -> np.ndarray:
    """Return which rows differ by more than rounding."""
    off = values != expected
    rows = off.reshape(len(off), -1).any(axis=1)
    places = np.flatnonzero(rows)
    if places.size:
        largest = float(np.abs(expected.astype(np.float32)).max())
        one, other = values[places].astype(np.float64), expected[places].astype(np.float64)
        near = np.isclose(one, other, rtol=0, atol=rounding * largest, equal_nan=True)
        rows[places] = ~near.reshape(len(places), -1).all(axis=1)
    return rows


def _irregular(values: np.ndarray) -> Iterator[int]:
    """Yield the rows of whole numbers that do not rise from row to row as nearly all others do."""
    steps, counts = np.unique(np.diff(values), return_counts=True)
    rest = values - steps[counts.argmax()] * np.arange(len(values))
    bases, counts = np.unique(rest, return_counts=True)
    if counts.max() >= _MOST_REGULAR * len(values):
        yield from map(int, np.flatnonzero(rest != bases[counts.argmax()]))
