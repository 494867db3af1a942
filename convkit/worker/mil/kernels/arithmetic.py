"""The arithmetic of simulations. It belongs to no processor: the same program and inputs give the
same bytes on all of them.

Operations that IEEE 754 defines exactly (sums, differences, products, quotients and square roots of
two numbers, comparisons, data movement, integers) are computed in float32. Everything else (sums of
products, reductions, exponentials, erf, tanh, normalizations, interpolation) is computed in
float64, and its result is rounded once to float32, then to the declared type. Products of whole
numbers are exact. Processors differ by about 1e-16 in float64, which vanishes in the rounding.

A result beyond float32 becomes infinite, denormal numbers are kept, and what IEEE 754 leaves open
is defined here: a zero that a maximum or a minimum selects is positive, every NaN has the same bits
(`same_nan`), and a float that an integer type cannot hold becomes its nearest number, NaN becomes 0
(as ARM's conversions do; x86 gives the lowest number).
"""

from typing import Literal, TypeAlias

import numpy as np
import torch

from convkit.worker.mil.element_values import Value

# An operation `moves` elements as stored and computes nothing; or it is `exact` in float32; or it
# `selects` numbers in float32, where the processor may choose either of two zeros; or it `rounds`
# what it computes in float64.
Arithmetic: TypeAlias = Literal["moves", "exact", "selects", "rounds"]


def operand(value: Value, arithmetic: Arithmetic) -> Value:
    """Return a value in the type that an operation computes in; only floats are widened."""
    if arithmetic == "moves" or not isinstance(value, torch.Tensor):
        return value
    if arithmetic == "rounds":
        return widened(value)
    return value.float() if value.is_floating_point() else value


def widened(value: torch.Tensor) -> torch.Tensor:
    """Return floats in float64, anything else unchanged."""
    if value.dtype == torch.float64 or not value.is_floating_point():
        return value
    # torch converts float16 to float64 more slowly than by way of float32
    return value.float().double()


def single(computed: torch.Tensor, arithmetic: Arithmetic) -> torch.Tensor:
    """Return an operation's result with float64 rounded to float32."""
    if computed.dtype == torch.float64:
        computed = computed.float()
    return computed + 0.0 if arithmetic == "selects" and computed.is_floating_point() else computed


def stored(computed: torch.Tensor, storage: torch.dtype | None) -> torch.Tensor:
    """Return a result in its declared type; None leaves it as computed."""
    if storage is None or storage == computed.dtype:
        return computed
    if storage.is_floating_point:
        return computed.float().to(storage)
    return _whole(computed, storage) if computed.is_floating_point() else computed.to(storage)


def same_nan(array: np.ndarray) -> np.ndarray:
    """Replace every NaN of an array by the positive quiet one, in place: processors differ in the
    sign of those that they make.
    """
    if array.dtype.kind == "f":
        array[np.isnan(array)] = np.nan
    return array


def _whole(computed: torch.Tensor, storage: torch.dtype) -> torch.Tensor:
    """Round toward zero to an integer type's numbers; torch leaves those out of range undefined."""
    if storage == torch.bool:
        return computed.to(storage)
    limits = torch.iinfo(storage)
    # the largest float64 up to the limit, which int64's own limit is not
    largest = float(limits.max) if limits.bits <= 32 else float(limits.max - 1023)
    wide = computed.double()
    return torch.where(wide.isnan(), 0.0, wide).clamp(limits.min, largest).to(storage)
