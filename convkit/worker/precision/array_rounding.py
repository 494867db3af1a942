"""Rounds arrays to another element type, as IEEE 754 says. Knows no graph: the original's stages
need it, too, and do without onnx.

Rounding is to nearest, ties to even, as in a runtime's Cast. A magnitude that is too large becomes
infinity, one that is too small becomes zero, and both keep their sign. (Raising tiny weights to the
smallest subnormal instead would multiply them by up to 2^25 and turn a harmless loss into an
error.)
"""

import numpy as np

from convkit.protocol.contract import DType
from convkit.protocol.numpy_dtypes import numpy_dtype


def round_array(array: np.ndarray, dtype: DType, *, saturate: bool = False) -> np.ndarray:
    """Round a float32 array to another type.

    With `saturate`, finite values beyond the type's range become its largest finite value instead
    of infinity; infinities and NaN are unchanged.
    """
    target = numpy_dtype(dtype)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        rounded = array.astype(target)
    if saturate:
        beyond = np.isinf(rounded) & np.isfinite(array)
        if beyond.any():
            # The largest finite number is the one below infinity.
            largest = np.nextafter(target.type(np.inf), target.type(0))
            rounded[beyond] = np.copysign(largest, array[beyond]).astype(target)
    return rounded
