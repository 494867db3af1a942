"""Fits a scale and an offset of an input by their effect on the outputs."""

import time
from collections.abc import Callable

import numpy as np

from convkit.worker.cause.boundary.graph_edge import GraphEdge
from convkit.worker.cause.boundary.input_changes import channel_axis
from convkit.worker.cause.search_types.divergence_place import FLOOR

_SAME = 10 * FLOOR
_ROUNDS = 8
# Scales to begin from: a search that starts a hundred times too small does not arrive.
_STARTS = (1.0, 255.0, 1 / 255)
# A step large enough to show in float32 outputs, but small relative to the unknowns.
_STEP = 1e-2
_ENOUGH = 3


def fitted_input(edge: GraphEdge, name: str, deadline: float) -> tuple[str, float] | None:
    """Return a description of the scale and offset of a float input that make the graph correct.

    Gauss-Newton over one scale and one offset, then over one of each per image color. Returns None
    if it does not reach parity, or runs out of time (`deadline`, monotonic seconds).
    """
    values = edge.feeds[name]
    if values.dtype.kind != "f" or not values.size:
        return None
    shapes: list[tuple[int, ...]] = [(1,) * values.ndim]
    if (axis := channel_axis(values)) is not None:
        shapes.append(tuple(3 if each == axis else 1 for each in range(values.ndim)))
    for shape in shapes:
        count = int(np.prod(shape))
        for start in _STARTS:
            first = np.concatenate([np.full(count, start), np.zeros(count)])
            fit = _descended(edge, name, first, _applied(values, shape), deadline)
            if fit is not None:
                numbers, after = fit
                return _text(numbers[:count], numbers[count:]), after
    return None


def _applied(values: np.ndarray, shape: tuple[int, ...]) -> Callable[[np.ndarray], np.ndarray]:
    def apply(numbers: np.ndarray) -> np.ndarray:
        scale, offset = np.split(numbers, 2)
        scaled = values.astype(np.float64) * scale.reshape(shape) + offset.reshape(shape)
        return np.asarray(scaled.astype(values.dtype))

    return apply


def _descended(
    edge: GraphEdge,
    name: str,
    numbers: np.ndarray,
    apply: Callable[[np.ndarray], np.ndarray],
    deadline: float,
) -> tuple[np.ndarray, float] | None:
    def residual(at: np.ndarray) -> np.ndarray | None:
        found = edge.outputs({**edge.feeds, name: apply(at)})
        return None if found is None else _residual(edge, found)

    worst = np.inf
    for _ in range(_ROUNDS):
        if time.monotonic() > deadline or (now := residual(numbers)) is None:
            return None
        if now.size < _ENOUGH * numbers.size:
            return None  # as many numbers as values: anything fits
        error = edge.error({**edge.feeds, name: apply(numbers)})
        if error <= _SAME:
            return numbers, error
        size = float(np.abs(now).max())
        if not size < 2 * worst:
            return None
        worst = min(worst, size)
        columns = []
        for place, number in enumerate(numbers):
            step = _STEP * max(abs(number), 0.1)
            moved = numbers.copy()
            moved[place] += step
            if (there := residual(moved)) is None:
                return None
            columns.append((there - now) / step)
        change, *_ = np.linalg.lstsq(np.stack(columns, axis=1), -now, rcond=None)
        numbers = numbers + change
    return None


def _residual(edge: GraphEdge, found: dict[str, np.ndarray]) -> np.ndarray | None:
    """Return all outputs' differences in parts of their rms, in one row; None for no numbers."""
    rows = []
    for name in edge.recording.outputs:
        expected = edge.recording.output(name).astype(np.float64)
        if name not in found or found[name].shape != expected.shape:
            return None
        rms = float(np.sqrt((expected * expected).mean())) or 1.0
        rows.append(((found[name] - expected) / rms).ravel())
    row = np.concatenate(rows)
    return row if np.isfinite(row).all() else None


def _text(scale: np.ndarray, offset: np.ndarray) -> str:
    def text_of(numbers: np.ndarray) -> str:
        rounded = [f"{number:.4g}" for number in numbers]
        return rounded[0] if len(rounded) == 1 else f"[{', '.join(rounded)}]"

    if np.abs(scale - 1).max() < 1e-4:
        return f"with an offset of {text_of(offset)}"
    if np.abs(offset).max() < 1e-4:
        return f"scaled by {text_of(scale)}"
    mean, deviation = -offset / scale, 1 / scale
    return (
        f"scaled by {text_of(scale)} with an offset of {text_of(offset)} (a normalization with mean"
        f" {text_of(mean)} and deviation {text_of(deviation)})"
    )
