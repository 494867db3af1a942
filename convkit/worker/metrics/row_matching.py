"""Pairs the rows of two sets, such as the detections of two models: by the overlap of their boxes,
by equal values, or by being nearest to each other.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np

from convkit.protocol.contract import DataAxis

# Boxes of one object overlap by at least this share (intersection over union), the usual criterion
# of detection benchmarks since PASCAL VOC.
_SAME_OBJECT = 0.5
# Rows further apart than this share of their outputs' magnitude are not a pair.
_NEAR = 0.1
# Whole numbers, such as classes, only decide between rows that are equally near: a label that
# differs is an error of that label, not another row. So do the other outputs between boxes.
_TIE_BREAK = 1e-3
# Rows per block of the table of distances, which bounds its memory.
_BLOCK = 256

# By output: one line of values for each row.
Rows = Mapping[str, np.ndarray]
# The costs of pairing rows, given by index, of either set; infinite where they are not a pair.
_Costs = Callable[[np.ndarray, np.ndarray], np.ndarray]


def match_rows(axis: DataAxis, reference: Rows, candidate: Rows) -> np.ndarray:
    """Return the pairs of rows that belong together: [pairs, 2] indices, in the reference's order.

    Both sets have the same outputs, each as [rows, values]; whole numbers keep an integer dtype.
    A row with NaN is in no pair.
    """
    counts = [len(next(iter(rows.values()))) for rows in (reference, candidate)]
    if not all(counts):
        return np.empty((0, 2), np.int64)
    keys = [axis.equal] if axis.equal in reference else []
    if not keys and all(values.dtype.kind in "iub" for values in reference.values()):
        keys = list(reference)
    if keys:
        return _equal_rows([(reference[key], candidate[key]) for key in keys if key is not None])
    costs = _distances(reference, candidate)
    if axis.boxes in reference and axis.boxes is not None:
        boxes = [_corners(rows[axis.boxes], axis.box_format) for rows in (reference, candidate)]
        costs = _with_overlaps(boxes[0], boxes[1], costs)
    else:
        costs = _limited(costs)
    pairs = _mutually_nearest(costs, counts[0], counts[1])
    return pairs[np.argsort(pairs[:, 0], kind="stable")]


def _equal_rows(values: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """Return the pairs of rows with equal values; equal rows of one set pair up in their order."""
    waiting: dict[tuple[bytes, ...], deque[int]] = defaultdict(deque)
    for place, key in enumerate(zip(*(map(_key, other) for _, other in values), strict=True)):
        waiting[key].append(place)
    pairs = [
        (place, waiting[key].popleft())
        for place, key in enumerate(zip(*(map(_key, own) for own, _ in values), strict=True))
        if waiting.get(key)
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)


def _key(row: np.ndarray) -> bytes:
    return np.ascontiguousarray(row).tobytes()


def _distances(reference: Rows, candidate: Rows) -> _Costs:
    """Return the distances between rows: each output counts by its root mean square difference, in
    parts of its largest magnitude.
    """
    whole = {name: values.dtype.kind in "iub" for name, values in reference.items()}
    sides: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for name in reference:
        both = [rows[name].astype(np.float64) for rows in (reference, candidate)]
        finite = np.concatenate([np.abs(side[np.isfinite(side)]) for side in both])
        weight = (_TIE_BREAK if whole[name] else 1.0) / (float(finite.max(initial=0.0)) or 1.0)
        weight /= float(np.sqrt(max(1, both[0].shape[1])))
        for side, values in zip(sides, both, strict=True):
            side.append(values * weight)
    first, second = (np.concatenate(side, axis=1) for side in sides)

    def costs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        one, other = first[left], second[right]
        squares = (one * one).sum(1)[:, None] + (other * other).sum(1) - 2 * (one @ other.T)
        return np.sqrt(np.maximum(squares, 0.0))  # maximum keeps NaN

    return costs


def _limited(distances: _Costs) -> _Costs:
    def costs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        found = distances(left, right)
        return np.where(found <= _NEAR, found, np.inf)

    return costs


def _with_overlaps(first: np.ndarray, second: np.ndarray, distances: _Costs) -> _Costs:
    """Return costs that are smallest for the boxes that overlap most; ties go to nearer rows."""

    def costs(left: np.ndarray, right: np.ndarray) -> np.ndarray:
        overlap = _overlaps(first[left], second[right])
        ties = _possible(distances(left, right))
        return np.where(overlap >= _SAME_OBJECT, 1.0 - overlap + _TIE_BREAK * ties, np.inf)

    return costs


def _corners(boxes: np.ndarray, box_format: Literal["corners", "center"]) -> np.ndarray:
    boxes = boxes.astype(np.float64)
    if box_format == "corners":
        return boxes
    center, half = boxes[:, :2], boxes[:, 2:] / 2
    return np.concatenate([center - half, center + half], axis=1)


def _overlaps(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the intersection over union of boxes given by two opposite corners, in any order.

    1 for equal boxes without an area; NaN for boxes that are not finite.
    """
    low = [np.minimum(boxes[:, :2], boxes[:, 2:]) for boxes in (first, second)]
    high = [np.maximum(boxes[:, :2], boxes[:, 2:]) for boxes in (first, second)]
    sides = np.minimum(high[0][:, None], high[1]) - np.maximum(low[0][:, None], low[1])
    shared = np.maximum(sides, 0.0).prod(axis=2)
    areas = [(upper - lower).prod(axis=1) for lower, upper in zip(low, high, strict=True)]
    union = areas[0][:, None] + areas[1] - shared
    equal = (first[:, None] == second).all(axis=2)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where((union <= 0.0) | equal, equal.astype(np.float64), shared / union)


def _mutually_nearest(costs: _Costs, rows: int, others: int) -> np.ndarray:
    """Return pairs of which each is the other's nearest, then those among the rest, until none is
    left.
    """
    left, right = np.arange(rows), np.arange(others)
    pairs = []
    while left.size and right.size:
        to_right, to_left = _nearest(costs, left, right)
        mutual = np.flatnonzero(
            (to_right >= 0) & (to_left[np.maximum(to_right, 0)] == np.arange(left.size))
        )
        if not mutual.size:
            break
        pairs.append(np.stack([left[mutual], right[to_right[mutual]]], axis=1))
        right = np.delete(right, to_right[mutual])
        left = np.delete(left, mutual)
    return np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64)


def _nearest(costs: _Costs, left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the index of the cheapest row on the other side, for both sides; -1 for none."""
    to_right = np.full(left.size, -1)
    to_left, least = np.full(right.size, -1), np.full(right.size, np.inf)
    for start in range(0, left.size, _BLOCK):
        block = _possible(costs(left[start : start + _BLOCK], right))
        nearest = block.argmin(axis=1)
        possible = np.isfinite(block[np.arange(len(block)), nearest])
        to_right[start : start + len(block)][possible] = nearest[possible]
        lowest = block.argmin(axis=0)
        cost = block[lowest, np.arange(right.size)]
        better = cost < least
        least[better], to_left[better] = cost[better], lowest[better] + start
    return to_right, to_left


def _possible(costs: np.ndarray) -> np.ndarray:
    """Return the costs, with NaN as infinity."""
    return np.where(np.isnan(costs), np.inf, costs)
