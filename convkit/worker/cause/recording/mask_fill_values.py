"""Numbers that a mask fills in, which every exporter writes differently."""

import numpy as np

# Values beyond this are masks' "minus infinity", which every exporter writes differently.
HUGE = 1e18
# Masks fill with a number far from all others, -1e4 or -1e9, beside which a difference between the
# scores themselves would vanish: fills are at least this large, and so many times all others.
_FILL, _APART = 1e3, 100.0


def filled(values: np.ndarray) -> np.ndarray:
    """Return where a mask filled in a number that is far from all others."""
    sizes = np.abs(values)
    large = sizes >= _FILL
    if not large.any() or large.all():
        return np.zeros(values.shape, bool)
    least, others = sizes[large].min(), sizes[~large].max()
    return large & bool(least >= _APART * others > 0)


def unfilled(values: np.ndarray) -> np.ndarray:
    """Return values with zeros for infinities and for what a mask filled in."""
    finite = np.where(np.abs(values) > HUGE, 0.0, values)
    return np.where(filled(finite), 0.0, finite)


def has_no_fills(values: np.ndarray) -> bool:
    """Return True if all elements are finite and too small to be a mask's: most tensors, for which
    a pass over all elements is all that it costs to know.
    """
    if not values.size or values.dtype.kind not in "fiub":
        return False
    return bool(values.min() > -_FILL and values.max() < _FILL)  # neither holds for NaN


def numbers(values: np.ndarray) -> np.ndarray:
    """Return values in float64."""
    return values.astype(np.float64, copy=False)
