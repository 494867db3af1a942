"""Rows of large tables that a file's graph and the original hold differently.

No case reads all rows of a vocabulary; but the original has the tensor, so nothing need be run to
know which of them to read. A table without a namesake is the original's of the same shape of which
most rows are equal.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch

# A table of fewer rows is read as a whole by the ladder's other cases.
_FEWEST_ROWS = 32
# What the same table has of equal rows, and up to how many differing ones are tried.
_MOST_EQUAL, _MOST_ROWS = 0.5, 256
# Relative to a table's largest value: what another tool's rounding leaves.
_ROUNDING = 1e-5
_FLOATS = {1: np.float32, 10: np.float16, 11: np.float64}  # onnx.TensorProto's types


def differing_rows(graph: Path, state: Mapping[str, "torch.Tensor"]) -> tuple[int, ...]:
    """Return the numbers of the rows in which a graph's tables differ from the original's."""
    import onnx

    tables = {
        name: tensor
        for name, tensor in state.items()
        if tensor.ndim > 1 and tensor.shape[0] >= _FEWEST_ROWS and tensor.is_floating_point()
    }
    if not tables:
        return ()
    model = onnx.load(graph, load_external_data=False)
    found: dict[int, None] = {}
    for initializer in model.graph.initializer:
        if initializer.data_type not in _FLOATS:
            continue
        same = {k: v for k, v in tables.items() if tuple(v.shape) == tuple(initializer.dims)}
        if not same:
            continue
        values = onnx.numpy_helper.to_array(initializer, str(graph.parent))
        found.update(dict.fromkeys(_rows(values, same)))
        if len(found) > _MOST_ROWS:
            break
    return tuple(found)[:_MOST_ROWS]


def _rows(values: np.ndarray, tables: Mapping[str, "torch.Tensor"]) -> Iterator[int]:
    """Yield the rows that differ from the table most like it; none if it equals one, or none is."""
    nearest: np.ndarray | None = None
    for tensor in tables.values():
        different = _different(
            values, tensor.detach().float().numpy().astype(values.dtype, copy=False)
        )
        if not different.any():
            return
        if nearest is None or different.sum() < nearest.sum():
            nearest = different
    if nearest is not None and nearest.mean() <= 1 - _MOST_EQUAL:
        yield from map(int, np.flatnonzero(nearest))


def _different(values: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Return which rows differ by more than rounding."""
    off = values != expected
    rows = off.reshape(len(off), -1).any(axis=1)
    places = np.flatnonzero(rows)
    if places.size:
        largest = float(np.abs(expected.astype(np.float32)).max())
        one, other = values[places].astype(np.float64), expected[places].astype(np.float64)
        near = np.isclose(one, other, rtol=0, atol=_ROUNDING * largest, equal_nan=True)
        rows[places] = ~near.reshape(len(places), -1).all(axis=1)
    return rows
