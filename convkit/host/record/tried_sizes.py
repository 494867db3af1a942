"""Which sizes of each axis a run tried, beside those that the recipe declares: a fault may exist at
one size only.
"""

import dataclasses
from collections.abc import Iterator

from convkit.host.record.run_record import RunRecord

# Sizes that are listed, and axes that a line on the terminal has room for.
_LISTED, _MOST_AXES = 8, 4


@dataclasses.dataclass(frozen=True)
class TriedSizes:
    """An axis, the range that the recipe declares, and the sizes that every verification tried."""

    axis: str
    low: int
    high: int
    sizes: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.axis} {_listed(self.sizes)} of {self.low} to {self.high}"


def tried_sizes(record: RunRecord) -> tuple[TriedSizes, ...]:
    """Return the sizes that were tried, axis by axis; none if nothing was verified."""
    verified = [
        [case.sizes for case in verification.cases]
        for target in record.targets
        for verification in target.verifications
        if verification.cases
    ]
    found = []
    for axis in record.contract.axes:
        of_each = [
            {sizes[axis.name] for sizes in cases if axis.name in sizes} for cases in verified
        ]
        if of_each and (common := set.intersection(*of_each)):
            found.append(TriedSizes(axis.name, axis.min, axis.max, tuple(sorted(common))))
    return tuple(found)


def fixed_sizes(record: RunRecord) -> tuple[str, ...]:
    """Return the inputs that have a size of their own which is always the same."""
    return tuple(
        f"{spec.name} [{', '.join(map(str, spec.shape))}]"
        for spec in record.contract.inputs
        if any(isinstance(size, int) and size > 1 for size in spec.shape)
    )


def sizes_line(record: RunRecord) -> str | None:
    """Return what was tried as one line; None if nothing was verified, or no size is known."""
    verified = any(each.cases for target in record.targets for each in target.verifications)
    tried, fixed = tried_sizes(record), fixed_sizes(record)
    if not verified or not (tried or fixed):
        return None
    shown = [*_shown(tried)]
    if fixed:
        more = f" and {len(fixed) - 1} more inputs" if len(fixed) > 1 else ""
        shown.append(f"only the fixed ones of {fixed[0]}{more}")
    return f"Sizes tried: {'; '.join(shown)}."


def _shown(tried: tuple[TriedSizes, ...]) -> Iterator[str]:
    yield from map(str, tried[:_MOST_AXES])
    if len(tried) > _MOST_AXES:
        yield f"those of {len(tried) - _MOST_AXES} more axes are in the report"


def _listed(sizes: tuple[int, ...]) -> str:
    if len(sizes) <= _LISTED:
        return ", ".join(map(str, sizes))
    first = ", ".join(map(str, sizes[: _LISTED - 2]))
    return f"{first} ... {sizes[-1]} ({len(sizes)} sizes)"
