"""Observations during a program's evaluation, besides its outputs."""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class NonFinite:
    """A result with NaN or infinite elements.

    `overflowed` counts the infinite elements that were finite before rounding to the declared type.
    `made_here`: all of the operation's inputs were finite. In a loop, the counts are from the first
    occurrence, and `times` is the number of occurrences.
    """

    operation: str
    tensor: str
    module: str
    dtype: str
    elements: int
    nan: int
    infinite: int
    overflowed: int
    made_here: bool
    times: int = 1


@dataclasses.dataclass(frozen=True)
class Trace:
    """`nonfinite` in order of occurrence; `operations` is the number of operations run;
    `peak_bytes` is the peak memory of activations (not weights), counting views as copies.
    """

    nonfinite: tuple[NonFinite, ...]
    operations: int
    peak_bytes: int

    @property
    def first_nan(self) -> NonFinite | None:
        """Return the first result with a NaN: infinities may be intended (a mask), a NaN never
        is.
        """
        return next((each for each in self.nonfinite if each.nan), None)

    @property
    def overflows(self) -> tuple[NonFinite, ...]:
        """Return the results in which finite numbers became infinite."""
        return tuple(each for each in self.nonfinite if each.overflowed)


@dataclasses.dataclass(frozen=True)
class Counts:
    """The number of NaN, infinite and overflowed elements of a tensor."""

    nan: int
    infinite: int
    overflowed: int


def count_nonfinite(stored: torch.Tensor, computed: torch.Tensor | None = None) -> Counts | None:
    """Count a float tensor's non-finite elements; None if all are finite.

    `computed` contains the same elements before rounding.
    """
    if not stored.is_floating_point() or _all_finite(stored):
        return None
    infinite = torch.isinf(stored)
    nans, infinities = int(torch.isnan(stored).sum()), int(infinite.sum())
    if not nans and not infinities:
        return None
    rounded = (
        computed is not None and computed.is_floating_point() and computed.dtype != stored.dtype
    )
    overflowed = (
        int((infinite & torch.isfinite(computed)).sum()) if rounded and computed is not None else 0
    )
    return Counts(nans, infinities, overflowed)


def _all_finite(value: torch.Tensor) -> bool:
    """Say whether every element is finite, without temporaries."""
    # A finite sum proves it. torch adds float16 in float32, but not if it is asked to return
    # float32: then it takes 20 times as long.
    if bool(torch.isfinite(value.sum())):
        return True
    low, high = value.aminmax()  # both are NaN if any element is; the sum of finite ones overflowed
    return bool(torch.isfinite(low)) and bool(torch.isfinite(high))
