"""Labels that are steps of a score: whether it is above a threshold, between which edges it lies.

The edges are not known. In the cases of a reference, the scores with one label lie apart from those
with the next, and an edge lies in between.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Mapping

import numpy as np

from convkit.worker.metrics.tensor_metrics import as_float64

Tensors = Mapping[str, np.ndarray]
# Elements of an output in a case: more labels than anybody's rows have are pixels.
_MOST_ELEMENTS = 1 << 18


@dataclasses.dataclass(frozen=True)
class Steps:
    """An output's labels as steps of another's scores. A label goes with scores that are above all
    of the labels below it, `above`, and below all of those above it, `below`; both in its order.
    `sign` is -1 for labels that fall with their score.
    """

    scores: str
    sign: int
    labels: np.ndarray
    above: np.ndarray
    below: np.ndarray

    def follows(self, found: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Say of each chosen label whether it is what a candidate's own scores may have."""
        moved = self.sign * as_float64(found).reshape(chosen.shape)
        places = np.searchsorted(self.labels, chosen).clip(max=self.labels.size - 1)
        is_known = self.labels[places] == chosen
        return is_known & (moved > self.above[places]) & (moved < self.below[places])


def find_steps(cases: Iterable[Tensors]) -> dict[str, Steps]:
    """Return, for each output of the original that holds labels, the score that they are steps of
    in all of its cases; none for an output with one label only.
    """
    ranges: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    lost = set[tuple[str, str]]()
    for outputs in cases:
        for name, labels in outputs.items():
            if labels.dtype.kind not in "iub" or not 0 < labels.size <= _MOST_ELEMENTS:
                continue
            for other, scores in outputs.items():
                pair = name, other
                if scores.dtype.kind not in "fV" or pair in lost:
                    continue
                values = as_float64(scores) if scores.size == labels.size else None
                if values is None or not np.isfinite(values).all():
                    lost.add(pair)
                else:
                    _widen(ranges.setdefault(pair, {}), labels, values)
    found = dict[str, Steps]()
    for (name, other), known in ranges.items():
        if (name, other) in lost or name in found or len(known) == 1:
            continue
        steps = _steps(other, 1, known) or _steps(other, -1, known)
        if steps is not None:
            found[name] = steps
    return found


def _widen(known: dict[int, tuple[float, float]], labels: np.ndarray, scores: np.ndarray) -> None:
    flat, values = labels.reshape(-1).astype(np.int64), scores.reshape(-1)
    for label in np.unique(flat).tolist():
        own = values[flat == label]
        low, high = known.get(label, (math.inf, -math.inf))
        known[label] = min(low, float(own.min())), max(high, float(own.max()))


def _steps(scores: str, sign: int, known: Mapping[int, tuple[float, float]]) -> Steps | None:
    """Return the steps of signed scores; None if labels do not rise with them."""
    labels = sorted(known)
    ends = [sorted((sign * low, sign * high)) for low, high in map(known.__getitem__, labels)]
    if any(not before[1] < after[0] for before, after in itertools.pairwise(ends)):
        return None
    above = [-math.inf, *(high for _, high in ends[:-1])]
    below = [*(low for low, _ in ends[1:]), math.inf]
    return Steps(scores, sign, np.array(labels), np.array(above), np.array(below))
