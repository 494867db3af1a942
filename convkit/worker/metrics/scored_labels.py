"""Labels that follow from scores which the model returns as well: places of the largest scores, in
order, and steps of a score.
"""

import functools
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from convkit.worker.metrics.score_steps import Steps
from convkit.worker.metrics.tensor_metrics import as_float64

Tensors = Mapping[str, np.ndarray]
# Returns places of scores.
Places = Callable[[np.ndarray], np.ndarray]

# With fewer classes than this, one is left out of none.
_FEWEST_CLASSES = 2
# Scores that are sorted to see whether labels are their order.
_MOST_SORTED = 1 << 22


def scored_share(
    output: str,
    reference: Tensors,
    candidate: Tensors,
    padding: np.ndarray | None,
    steps: Steps | None = None,
) -> float:
    """Return the share of an output's labels that are not the original's, but what the candidate's
    own scores choose, which another output holds; 0 if the original's labels do not follow from
    the scores of any. `steps` are known from the original's other cases.
    """
    labels, chosen = reference[output], candidate[output]
    if labels.shape != chosen.shape or labels.dtype.kind not in "iub" or not labels.size:
        return 0.0
    counted = np.ones(labels.shape, dtype=bool)
    if padding is not None:
        counted &= ~padding.reshape(padding.shape + (1,) * (labels.ndim - padding.ndim))

    def share(are_chosen: np.ndarray) -> float:
        return float((are_chosen & (labels != chosen) & counted).sum() / max(1, counted.sum()))

    if steps is not None and (found := candidate.get(steps.scores)) is not None:
        return share(steps.follows(found, chosen)) if found.size == chosen.size else 0.0
    for name, scores in reference.items():
        found = candidate.get(name)
        if found is None or found.shape != scores.shape or scores.dtype.kind not in "fV":
            continue
        for places in _choices(as_float64(scores), labels):
            return share(places(as_float64(found)) == chosen)
    return 0.0


def chosen_along(scores: np.ndarray, labels: np.ndarray) -> int | None:
    """Return the axis along which labels are the argmax of scores; None if there is none."""
    for axis in reversed(range(scores.ndim)):
        largest = scores.argmax(axis)
        if largest.size == labels.size and np.array_equal(largest.ravel(), labels.ravel()):
            return axis
    return None


def _choices(scores: np.ndarray, labels: np.ndarray) -> Iterator[Places]:
    """Yield what makes these labels of these scores."""
    if labels.dtype.kind == "b" or not scores.size or not np.isfinite(scores).all():
        return
    for places in _places(scores, labels.shape):
        if np.array_equal(places(scores), labels):
            yield places


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
