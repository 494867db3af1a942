"""Axis sizes for probing and tracing a model."""

import itertools
from collections.abc import Iterator

from convkit.protocol.contract import Axis, Contract, dimension_axes, dimension_size

# Small primes, so that a size is never a product or sum of others; 2 comes last, as the most common
# constant.
_PREFERRED = (3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 2)
_CHOICES_PER_AXIS = 12


def example_sizes(contract: Contract) -> Iterator[dict[str, int]]:
    """Yield sizes to try, best first, all within the axes' ranges and at least 2 if an axis can
    vary.

    Tracers treat sizes 0 and 1 specially and may confuse two axes of the same size, so the first
    choices have no two equal dimensions, including fixed sizes. The typical sizes come last, for
    models with other constraints (such as image sides that are multiples of 32).
    """
    names = [axis.name for axis in contract.axes]
    choices = [_choices(axis) for axis in contract.axes]
    fixed = {size for spec in contract.inputs for size in spec.shape if isinstance(size, int)}
    loose = None
    found = 0
    for values in itertools.islice(itertools.product(*choices), 50_000):
        sizes = dict(zip(names, values, strict=True))
        dimensions = _symbolic_dimensions(contract, sizes)
        if len(set(dimensions)) < len(dimensions):
            continue
        if fixed.isdisjoint(dimensions):
            yield sizes
            found += 1
            if found == 2:
                break
        elif loose is None:
            loose = sizes
    if found == 0 and loose is not None:
        yield loose
    typical = {
        axis.name: axis.typical if axis.min == axis.max else max(2, axis.typical)
        for axis in contract.axes
    }
    if found == 0 or names:
        yield typical


def other_sizes(contract: Contract, sizes: dict[str, int]) -> dict[str, int] | None:
    """Return sizes that differ from `sizes` on every axis that can vary, or None if no axis can."""
    other: dict[str, int] = {}
    for axis in contract.axes:
        others = [choice for choice in _choices(axis) if choice != sizes[axis.name]]
        taken = set(other.values())
        other[axis.name] = next(
            (choice for choice in others if choice not in taken), sizes[axis.name]
        )
    return other if other != sizes else None


def _choices(axis: Axis) -> list[int]:
    if axis.min == axis.max:
        return [axis.min]
    low = max(2, axis.min)
    preferred = [size for size in _PREFERRED if low <= size <= axis.max]
    following = [
        size
        for size in range(low, min(axis.max, low + _CHOICES_PER_AXIS) + 1)
        if size not in preferred
    ]
    return [*preferred, *following][:_CHOICES_PER_AXIS]


def _symbolic_dimensions(contract: Contract, sizes: dict[str, int]) -> list[int]:
    """Return the sizes of all varying dimensions, each expression once."""
    fixed = {axis.name for axis in contract.axes if axis.min == axis.max}
    texts = {
        dimension
        for spec in contract.inputs
        for dimension in spec.shape
        if isinstance(dimension, str)
    }
    return [
        dimension_size(text, sizes)
        for text in sorted(texts)
        if not fixed.issuperset(dimension_axes(text))
    ]
