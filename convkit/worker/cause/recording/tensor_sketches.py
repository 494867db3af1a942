"""Figures of a tensor that no reordering of its elements changes, by which equal ones are found."""

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from convkit.worker.cause.recording.mask_fill_values import has_no_fills, numbers, unfilled

# Divides where values have no size.
TINY = 1e-30
# Elements that are converted to float64 at a time, which the processor's cache holds.
_BLOCK = 1 << 14
_LARGEST, _PIECE = 10, 1 << 10


class Sketches:
    """The sketches of many tensors, to find those that may equal another."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self.arrays = arrays
        self._names: dict[int, list[str]] = {}
        rows: dict[int, list[np.ndarray]] = {}
        for name, array in arrays.items():
            if array.dtype.kind in "fiub" and array.size > 1 and not is_flat(array):
                self._names.setdefault(array.size, []).append(name)
                rows.setdefault(array.size, []).append(sketch(array))
        self._rows = {size: np.stack(each) for size, each in rows.items()}

    def near(self, figures: np.ndarray, size: int, within: float) -> Sequence[str]:
        """Return the names of tensors of one size with figures close to the given ones."""
        rows = self._rows.get(size)
        if rows is None:
            return ()
        with np.errstate(all="ignore"):
            off = np.abs(rows - figures) <= within * (figures[0] + TINY)
        return [self._names[size][place] for place in np.flatnonzero(off.all(axis=1))]


def sketch(array: np.ndarray) -> np.ndarray:
    """Return rms, mean, mean magnitude, least, largest and mean of the ten largest."""
    values = array.ravel()
    if not has_no_fills(values):
        values = unfilled(np.nan_to_num(numbers(values), nan=0.0))
    square = total = size = 0.0
    for block in _blocks(values):
        square += float(block @ block)
        total += float(block.sum())
        size += float(np.abs(block).sum())
    count = values.size
    return np.array(
        [
            *(math.sqrt(square / count), total / count, size / count),
            *(values.min(), values.max(), _largest(values).mean()),
        ],
        np.float64,
    )


def variation(array: np.ndarray) -> float:
    """Return the standard deviation of the elements that are not zero, in parts of their rms."""
    values = array.ravel()
    if not has_no_fills(values):
        values = unfilled(np.nan_to_num(numbers(values), nan=0.0))
    count = np.count_nonzero(values)
    if not count or not (square := power(values) * values.size / count) > 0:
        return 1.0
    mean = sum(float(block.sum()) for block in _blocks(values)) / count
    deviations = (float(np.square(block[block != 0] - mean).sum()) for block in _blocks(values))
    return math.sqrt(sum(deviations) / count / square)


def power(array: np.ndarray) -> float:
    """Return the mean of the elements' squares, which are summed up in float32 at first if the
    elements are: to six digits, and in a third of the time.
    """
    values = array.ravel()
    if values.dtype != np.float32:
        return sum(float(block @ block) for block in _blocks(values)) / array.size
    starts = range(0, values.size, _BLOCK)
    parts = (values[start : start + _BLOCK] for start in starts)
    return sum(float(part @ part) for part in parts) / array.size


def is_flat(array: np.ndarray) -> bool:
    """Return True if all elements are equal: such a tensor matches many others by chance."""
    if not array.size:
        return True
    first = array.flat[0]
    return bool((array.flat[:_LARGEST] == first).all() and (array == first).all())


def _blocks(values: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, values.size, _BLOCK):
        yield numbers(values[start : start + _BLOCK])


def _largest(values: np.ndarray) -> np.ndarray:
    """Return the ten largest elements: they are among the pieces with the ten largest maxima."""
    whole = values.size - values.size % _PIECE
    pieces = values[:whole].reshape(-1, _PIECE)
    if len(pieces) > _LARGEST:
        order = np.argpartition(pieces.max(axis=1), -_LARGEST)[-_LARGEST:]
        values = np.concatenate([pieces[order].ravel(), values[whole:]])
    if values.size > _LARGEST:
        values = np.partition(values, -_LARGEST)[-_LARGEST:]
    return numbers(values)
