"""Tells NaN that a model passes on from its inputs from NaN that it makes of numbers."""

from collections.abc import Callable

import numpy as np

from convkit.protocol.numpy_dtypes import without_bits
from convkit.worker.cases.case import Feeds
from convkit.worker.reference.original_outputs import count_nan
from convkit.worker.runtime_interface.sessions import RunFailedError


def passes_nan(feeds: Feeds, outputs: Feeds, run: Callable[[Feeds], Feeds]) -> bool:
    """Say whether inputs hold NaN and are why outputs do: with numbers in its place, those before
    it in the tensor, the model returns none.
    """
    if not any(map(count_nan, feeds.values())) or not any(map(count_nan, outputs.values())):
        return False
    try:
        numbers = run({name: _without_nan(values) for name, values in feeds.items()})
    except RunFailedError:
        return False
    return not any(map(count_nan, numbers.values()))


def _without_nan(values: np.ndarray) -> np.ndarray:
    """Return a tensor with the last number before each NaN in its place; 1 where there is none."""
    if not count_nan(values):
        return values
    flat = without_bits(values).reshape(-1)
    is_number = ~np.isnan(flat)
    before = np.maximum.accumulate(np.where(is_number, np.arange(flat.size), -1))
    filled = np.where(before >= 0, flat[before], 1.0).astype(flat.dtype)
    return filled.reshape(values.shape).astype(values.dtype)
