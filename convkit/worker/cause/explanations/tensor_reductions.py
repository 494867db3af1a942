"""What a value is reduced to: its first element, its last, its mean, its mean without padding."""

from collections.abc import Iterator

import numpy as np

from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.recording.tensor_sketches import is_flat
from convkit.worker.cause.search_types.divergence_place import EQUAL
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite, pinned


def reductions(region: Region) -> Iterator[Rewrite]:
    """Reduce a known value as the original does, if a common reduction has its result."""
    found, expected = region.computed(region.graph), region.expected
    if found is None or expected.dtype.kind != "f" or is_flat(expected):
        return
    for name, given in region.feeds.items():
        if given.dtype != expected.dtype or given.ndim < 2 or given.size <= expected.size:
            continue
        ways = list(_ways(given, region))
        should = next((each for each in ways if _equals(each[1], expected)), None)
        own = next((each for each in ways if _equals(each[1], found)), None)
        if should is None or (own is not None and own[0] == should[0]):
            continue
        # Of a value that no node reads here, it would be a matter of what is read.
        if own is None and not region.reads(name):
            continue
        now = "" if own is None else f"it is {own[0]} of {name} and "
        text = f"{now}should be {should[0]}" + ("" if own is not None else f" of {name}")
        values = should[1].reshape(expected.shape).astype(expected.dtype)
        graph = pinned(region.graph, region.target, values)
        yield Rewrite("operator", region.target, text if now else f"it {text}", graph)


def _equals(values: np.ndarray, wanted: np.ndarray) -> bool:
    return values.size == wanted.size and (
        relative_error(values.reshape(wanted.shape), wanted.astype(np.float64)) <= EQUAL
    )


def _ways(given: np.ndarray, region: Region) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what a value may be reduced to, with its description."""
    wide = given.astype(np.float64)
    for axis in range(1, given.ndim):
        over = f"over axis {axis}"
        yield f"the first element {over}", np.take(wide, 0, axis)
        yield f"the last element {over}", np.take(wide, -1, axis)
        yield f"the mean {over}", wide.mean(axis)
        yield f"the sum {over}", wide.sum(axis)
        yield f"the largest element {over}", wide.max(axis)
        yield f"the smallest element {over}", wide.min(axis)
        yield f"the L2 norm {over}", np.sqrt((wide * wide).sum(axis))
        yield f"the L1 norm {over}", np.abs(wide).sum(axis)
        if given.shape[axis] > 1:
            yield f"the standard deviation {over} (divided by n - 1)", wide.std(axis, ddof=1)
            yield f"the standard deviation {over} (divided by n)", wide.std(axis)
            yield f"the variance {over} (divided by n - 1)", wide.var(axis, ddof=1)
            yield f"the variance {over} (divided by n)", wide.var(axis)
    for name, mask in region.feeds.items():
        if given.ndim == 3 and mask.shape == given.shape[:2] and mask.dtype.kind in "iub":
            yield from _masked(wide, mask != 0, name)


def _masked(wide: np.ndarray, keep: np.ndarray, name: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield what rows by positions by features become if a mask says which positions count."""
    kept, counts = keep[..., None], keep.sum(1)
    if not counts.all():
        return
    where = f"over the positions where {name} is not 0"
    yield f"the mean {where}", (wide * kept).sum(1) / counts[:, None]
    yield f"the largest element {where}", np.where(kept, wide, -np.inf).max(1)
    yield f"the last element {where}", wide[np.arange(len(wide)), counts - 1]
