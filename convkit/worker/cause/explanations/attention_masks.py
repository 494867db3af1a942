"""Masks that hide too little or too much: future positions, those beyond a window, padding."""

from collections.abc import Iterator

import numpy as np

from convkit.worker.cause.matching.relative_difference import relative_error
from convkit.worker.cause.search_types.divergence_place import EQUAL
from convkit.worker.cause.search_types.diverging_region import Region
from convkit.worker.cause.search_types.graph_edits import Rewrite, pinned
from convkit.worker.cause.search_types.search_results import Kind

# What a mask writes or adds is at most this; -1e4 is the smallest in use.
_HIDDEN = -1e3


def masks(region: Region) -> Iterator[Rewrite]:
    """Hide what the original hides, if a value is right everywhere else."""
    found, expected = region.found(), region.expected
    if found is None or found.ndim < 2:
        return
    own, should = _hidden(found), _hidden(expected)
    if own is None or should is None or np.array_equal(own, should):
        return
    both = ~(own | should)
    # Where one side hides and the other does not, values say nothing.
    if both.any() and not relative_error(found[both], expected[both]) <= EQUAL:
        return
    parts: list[str] = []
    if (open_ := should & ~own).any():
        parts.append(f"does not hide {_described(open_, own, region)}, which the original hides")
    if (closed := own & ~should).any():
        parts.append(
            f"hides {_described(closed, should, region)}, which the original does not hide"
        )
    kind: Kind = "missing" if open_.any() else "extra"
    graph = pinned(region.graph, region.target, expected)
    yield Rewrite(kind, region.target, f"the mask {' and '.join(parts)}", graph)


def _hidden(values: np.ndarray) -> np.ndarray | None:
    """Return which elements are masked: written over by, or added to, a large negative number."""
    if values.dtype.kind != "f" or np.isnan(values).any():
        return None
    return np.asarray(values <= _HIDDEN)


def _described(places: np.ndarray, besides: np.ndarray, region: Region) -> str:
    """Describe masked elements: those that a known mask has beside those that are masked anyway."""
    rows, columns = places.shape[-2:]
    ahead = np.arange(columns) - np.arange(rows)[:, None] - (columns - rows)
    for step in range(-columns, columns + 1):
        if np.array_equal(places, (ahead >= step) & ~besides):
            return (
                "the future (a causal mask)"
                if step == 1
                else f"positions from {step:+d} on, counted from each row's own"
            )
        if np.array_equal(places, (ahead <= -step) & ~besides):
            return f"positions {step} or more back (a sliding window)"
    for name, given in region.feeds.items():
        keys = _by_key(given, places.shape)
        for hidden, what in () if keys is None else ((keys == 0, "0"), (keys != 0, "not 0")):
            if hidden.any() and np.array_equal(places, hidden & ~besides):
                return f"positions where {name} is {what}"
    return f"{int(places.sum())} of {places.size} elements"


def _by_key(given: np.ndarray, shape: tuple[int, ...]) -> np.ndarray | None:
    """Return a mask of rows by positions, laid out over the keys of attention scores."""
    if given.ndim != 2 or given.shape != (shape[0], shape[-1]):
        return None
    keys = given.reshape(shape[0], *(1,) * (len(shape) - 2), shape[-1])
    return np.broadcast_to(keys, shape)
