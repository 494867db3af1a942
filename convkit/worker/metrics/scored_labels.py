"""Labels that follow from scores which the model returns as well: places of the largest scores, in
order, and whether a score is above a threshold.
"""

import functools
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from convkit.worker.metrics.tensor_metrics import as_float64

Tensors = Mapping[str, np.ndarray]
# Returns places of scores.
Places = Callable[[np.ndarray], np.ndarray]
# Says of each label whether it is what some scores, of the original's shape, choose.
Follows = Callable[[np.ndarray, np.ndarray], np.ndarray]

# With fewer classes than this, one is left out of none.
_FEWEST_CLASSES = 2
# Scores that are sorted to see whether labels are their order.
_MOST_SORTED = 1 << 22


def scored_share(
    output: str, reference: Tensors, candidate: Tensors, padding: np.ndarray | None
) -> float:
    """Return the share of an output's labels that are not the original's, but what the candidate's
    own scores choose, which another output holds; 0 if the original's labels do not follow from
    the scores of any.
    """
    labels, chosen = reference[output], candidate[output]
    if labels.shape != chosen.shape or labels.dtype.kind not in "iub" or not labels.size:
        return 0.0
    counted = np.ones(labels.shape, dtype=bool)
    if padding is not None:
        counted &= ~padding.reshape(padding.shape + (1,) * (labels.ndim - padding.ndim))
    for name, scores in reference.items():
        found = candidate.get(name)
        if found is None or found.shape != scores.shape or scores.dtype.kind not in "fV":
            continue
        for follows in _choices(as_float64(scores), labels):
            right = follows(as_float64(found), chosen) & (labels != chosen) & counted
            return float(right.sum() / max(1, counted.sum()))
    return 0.0


def chosen_along(scores: np.ndarray, labels: np.ndarray) -> int | None:
    """Return the axis along which labels are the argmax of scores; None if there is none."""
    for axis in reversed(range(scores.ndim)):
        largest = scores.argmax(axis)
        if largest.size == labels.size and np.array_equal(largest.ravel(), labels.ravel()):
            return axis
    return None


def _choices(scores: np.ndarray, labels: np.ndarray) -> Iterator[Follows]:
    """Yield what makes these labels of these scores."""
    if not scores.size or not np.isfinite(scores).all():
        return
    if labels.dtype.kind == "b":
        for sign in (1, -1):
            if (follows := _above(sign * scores, labels, sign)) is not None:
                yield follows
        return
    for places in _places(scores, labels.shape):
        if np.array_equal(places(scores), labels):
            yield functools.partial(_are_at, places)


def _are_at(places: Places, found: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return places(found) == chosen


def _above(scores: np.ndarray, labels: np.ndarray, sign: int) -> Follows | None:
    """Return what compares scores with the threshold that separates these; None if none does."""
    if scores.size != labels.size or labels.all() or not labels.any():
        return None
    rows = scores.reshape(labels.shape)
    below, above = float(rows[~labels].max()), float(rows[labels].min())
    if not below < above:
        return None

    def follows(found: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        moved = sign * found.reshape(chosen.shape)
        return np.where(chosen, moved > below, moved < above)

    return follows


def _places(scores: np.ndarray, shape: tuple[int, ...]) -> Iterator[Places]:
    """Yield what returns places of scores in the labels' shape: of the largest or the smallest one
    along an axis, or of as many as fit, in order.
    """
    size = int(np.prod(shape))
    for axis in reversed(range(scores.ndim)):
        if size == scores.size // scores.shape[axis]:
            for sign in (1, -1):
                yield functools.partial(_largest, axis, sign, shape)
            if scores.shape[axis] > _FEWEST_CLASSES:
                for kept, first in ((slice(-1), 0), (slice(1, None), 0), (slice(1, None), 1)):
                    yield functools.partial(_of_classes, axis, kept, first, shape)
        if len(shape) != scores.ndim or scores.size > _MOST_SORTED:
            continue
        count = shape[axis]
        if shape == (*scores.shape[:axis], count, *scores.shape[axis + 1 :]):
            for sign in (1, -1):
                yield functools.partial(_first, axis, sign, count)


def _largest(axis: int, sign: int, shape: tuple[int, ...], scores: np.ndarray) -> np.ndarray:
    return np.asarray((sign * scores).argmax(axis)).reshape(shape)


def _of_classes(
    axis: int, kept: slice, first: int, shape: tuple[int, ...], scores: np.ndarray
) -> np.ndarray:
    """Return the largest of all but one class, such as that of no object; counted from `first`."""
    cut = scores[(slice(None),) * axis + (kept,)]
    return np.asarray(cut.argmax(axis)).reshape(shape) + first


def _first(axis: int, sign: int, count: int, scores: np.ndarray) -> np.ndarray:
    order = np.argsort(-sign * scores, axis, kind="stable")
    return np.take(order, range(min(count, scores.shape[axis])), axis)
