"""Where a model depends on denormal numbers, and when a tensor has changed. Needs only numpy."""

import dataclasses

import numpy as np

from convkit.protocol.float_limits import SMALLEST_NORMAL
from convkit.worker.metrics.magnitudes import rms

# Beyond this share of its rms, a result differs by more than rounding.
_SHARE = 1e-3


@dataclasses.dataclass(frozen=True)
class DenormalPlace:
    """The first operation whose result changes if denormals are flushed, with its module's path and
    line, and its node in an ONNX file. `mended`: with the smallest normal number in place of every
    smaller constant, nothing changes; None if the model has no such constant.
    """

    operator: str
    module: str
    source: str | None
    mended: bool | None
    node: str | None = None


def changed(kept: np.ndarray, flushed: np.ndarray, share: float = _SHARE) -> bool:
    """Return True if a tensor differs by more than a share of its rms, and by more than a denormal
    number is; NaN and infinity count if only one side has them.
    """
    if kept.shape != flushed.shape:
        return True
    one, other = kept.astype(np.float64), flushed.astype(np.float64)
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)):
        return True
    error = np.abs(one[finite] - other[finite]).max(initial=0.0)
    return not error <= max(share * rms(one[finite]), SMALLEST_NORMAL)
