"""How large a tensor's values are: what errors are measured in parts of."""

import numpy as np


def largest_value(values: np.ndarray) -> float:
    """Return the largest finite magnitude; 0 for none."""
    return float(np.abs(values).max(initial=0.0, where=np.isfinite(values)))


def rms(values: np.ndarray) -> float:
    """Return the root mean square of values, in float64: 0 for none, NaN if any is NaN."""
    return float(np.sqrt(np.square(values.astype(np.float64)).mean())) if values.size else 0.0
