"""The limits of float16 and bfloat16, and the denormals of float32. Standard library only."""

import dataclasses

from convkit.protocol.contract import DType

# The smallest normal float32; nonzero numbers below it are denormal. Some kernels flush those by
# themselves, such as onnxruntime's Softmax with AVX2, which returns 0 below exp(-87.3), where the
# one with AVX-512 does not. So a difference below this is none that matters.
SMALLEST_NORMAL = 2.0**-126


@dataclasses.dataclass(frozen=True)
class FloatLimits:
    """A type's limits, as magnitudes. With rounding to nearest even, values from `overflows_from`
    become infinity and values up to `vanishes_up_to` become zero; values below `smallest_normal`
    lose digits.
    """

    largest: float
    overflows_from: float
    smallest_normal: float
    vanishes_up_to: float


# IEEE 754: precision p, exponents emin to emax. largest = (2 - 2^(1-p)) 2^emax, overflow from half
# a step above, smallest normal 2^emin, and half the smallest subnormal 2^(emin - p + 1) rounds to
# zero.
LIMITS: dict[DType, FloatLimits] = {
    "float16": FloatLimits(65504.0, 65520.0, 2.0**-14, 2.0**-25),
    "bfloat16": FloatLimits(
        (2 - 2.0**-7) * 2.0**127, (2 - 2.0**-8) * 2.0**127, 2.0**-126, 2.0**-134
    ),
}
