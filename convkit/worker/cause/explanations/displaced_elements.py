"""Elements at the wrong places along their axes: rolled, reversed, or listed in another order."""

from collections.abc import Iterator

import numpy as np

from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.recording.tensor_sketches import is_flat
from convkit.worker.cause.search_types.divergence_place import EQUAL
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite, pinned

# Indices of an order that a message lists, and the elements and the longest axis compared.
_SHOWN, _MOST, _LONGEST = 12, 1 << 18, 512

_UNMOVED = "as it is"

# For each axis, the index that each place's element comes from.
Orders = tuple[np.ndarray, ...]


def moved(region: Region) -> Iterator[Rewrite]:
    """Move the elements of a known value as the original does, or those of the result itself."""
    found, expected = region.found("fiu"), region.expected
    if found is None or not 1 < expected.size <= _MOST:
        return
    graph = pinned(region.graph, region.target, expected)
    for name, given in region.feeds.items():
        if not region.reads(name) or given.dtype.kind != expected.dtype.kind:
            continue
        own, should = orders(given, found), orders(given, expected)
        if own is None or should is None or _text(own) == _text(should):
            continue
        text = f"it has {name} {_text(own)} and should have it {_text(should)}"
        yield Rewrite("order", region.target, text, graph)
    within = orders(found, expected)
    if within is not None and _text(within) != _UNMOVED:
        text = f"its elements are in the wrong order: they should be {_text(within)}"
        yield Rewrite("order", region.target, text, graph)


def orders(given: np.ndarray, made: np.ndarray) -> Orders | None:
    """Return how one value holds another's elements, if each axis is reordered by itself; None if
    it holds others.
    """
    if given.shape != made.shape or not given.size or is_flat(given) or max(given.shape) > _LONGEST:
        return None
    one, other = given.astype(np.float64), made.astype(np.float64)
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return None
    found = tuple(_order(one, other, axis) for axis in range(given.ndim))
    if any(np.unique(order).size != order.size for order in found):
        return None
    return found if relative_error(one[np.ix_(*found)], other) <= EQUAL else None


def _order(given: np.ndarray, made: np.ndarray, axis: int) -> np.ndarray:
    """Return, for each slice of `made` along an axis, the slice of `given` with its elements."""
    theirs, mine = (
        np.sort(np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1), axis=1)
        for each in (given, made)
    )
    return np.array([int(np.abs(theirs - row).max(axis=1).argmin()) for row in mine])


def _text(found: Orders) -> str:
    parts = [part for axis, order in enumerate(found) if (part := _along(order, axis))]
    return " and ".join(parts) or _UNMOVED


def _along(order: np.ndarray, axis: int) -> str:
    """Describe an axis's order; "" if nothing is moved."""
    size = order.size
    plain = np.arange(size)
    if np.array_equal(order, plain):
        return ""
    for step in sorted(range(1 - size, size), key=abs):
        if np.array_equal(order, np.roll(plain, step)):
            return f"shifted by {step} along axis {axis}"
    if np.array_equal(order, plain[::-1]):
        return f"reversed along axis {axis}"
    shown = ", ".join(str(each) for each in order[:_SHOWN]) + (", ..." if size > _SHOWN else "")
    return f"in the order [{shown}] along axis {axis}"
