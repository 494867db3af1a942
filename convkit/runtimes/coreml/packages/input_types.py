"""Converts inputs to a package's element types and shapes."""

import numpy as np


class UnservableError(ValueError):
    """An input contains numbers that the package's element type cannot represent."""


def as_served(array: np.ndarray, dtype: str | None) -> np.ndarray:
    """Return an input in the package's type, a scalar as one element; raises UnservableError for
    numbers that the type cannot represent.
    """
    if array.ndim == 0:
        array = array.reshape(1)
    if dtype is None or array.dtype == np.dtype(dtype):
        return array
    with np.errstate(
        over="ignore"
    ):  # a state is stored in float16, where large values are infinite
        served = array.astype(dtype)
    if array.dtype.kind in "iu" and not np.array_equal(served, array):
        raise UnservableError(
            f"values up to {np.abs(array).max()} do not fit into {dtype}, the package's type"
        )
    return served
