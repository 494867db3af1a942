"""Tells NaN that a model passes on from inputs, or writes, from NaN that it makes of numbers."""

import contextlib
import sys
from collections.abc import Callable

import numpy as np

from convkit.protocol.numpy_dtypes import without_bits
from convkit.worker.cases.case import Feeds
from convkit.worker.reference.original_outputs import count_nan
from convkit.worker.runtime_interface.sessions import RunFailedError


def passes_nan(feeds: Feeds, outputs: Feeds, run: Callable[[Feeds], Feeds]) -> bool:
    """Say whether outputs hold NaN because inputs do, or because the model's code writes it: with
    numbers in its place (in inputs those before it in the tensor), the model returns none.
    """
    if not any(map(count_nan, outputs.values())):
        return False
    try:
        with _without_written():
            numbers = run({name: _without_nan(values) for name, values in feeds.items()})
    except RunFailedError:
        return False
    return not any(map(count_nan, numbers.values()))


def _without_written() -> contextlib.AbstractContextManager[object]:
    if "torch" not in sys.modules:  # environments of ONNX files lack it
        return contextlib.nullcontext()
    from convkit.worker.original.written_nan import WithoutWrittenNan

    return WithoutWrittenNan()


def _without_nan(values: np.ndarray) -> np.ndarray:
    """Return a tensor with the last number before each NaN in its place; 1 where there is none."""
    if not count_nan(values):
        return values
    flat = without_bits(values).reshape(-1)
    is_number = ~np.isnan(flat)
    before = np.maximum.accumulate(np.where(is_number, np.arange(flat.size), -1))
    filled = np.where(before >= 0, flat[before], 1.0).astype(flat.dtype)
    return filled.reshape(values.shape).astype(values.dtype)
