"""What was met on the way through a program besides its outputs."""

import dataclasses

import torch


@dataclasses.dataclass(frozen=True)
class NonFinite:
    """A result with NaN or infinite elements.

    `overflowed` of the infinite ones were finite until they were rounded to the declared type.
    `made_here`: all that the operation took was finite. In a loop the counts are of the first time,
    and `times` is how often it happened.
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
    """`nonfinite` in the order they were met; `operations` counts what was run; `peak_bytes` is the
    most that activations (not weights) held at once, views counted as copies.
    """

    nonfinite: tuple[NonFinite, ...]
    operations: int
    peak_bytes: int

    @property
    def first_nan(self) -> NonFinite | None:
        """Return the first result with a NaN: infinities may be meant (a mask), a NaN never is."""
        return next((each for each in self.nonfinite if each.nan), None)

    @property
    def overflows(self) -> tuple[NonFinite, ...]:
        """Return the results in which finite numbers became infinite."""
        return tuple(each for each in self.nonfinite if each.overflowed)


@dataclasses.dataclass(frozen=True)
class Counts:
    """How many elements of a tensor are what."""

    nan: int
    infinite: int
    overflowed: int


def count_nonfinite(stored: torch.Tensor, computed: torch.Tensor | None = None) -> Counts | None:
    """Count a float tensor's elements that are not finite; None if all are.

    `computed` holds the same elements before they were rounded.
    """
    # A finite sum proves that every element is finite, in one pass that stores nothing.
    if not stored.is_floating_point() or bool(torch.isfinite(stored.sum(dtype=torch.float32))):
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
