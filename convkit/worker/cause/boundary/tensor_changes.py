"""Possible changes to a whole tensor on its way into or out of a graph, as numpy functions."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator

import numpy as np

from convkit.worker.cause.search_types.divergence_place import FLOOR

Function = Callable[[np.ndarray], np.ndarray]

# Sizes of an image's color axis.
_COLORS = (1, 3)
# Permuted axes and flips are tried up to this rank: there are rank! orders.
_RANK = 5
# Outputs this near, in parts of their rms, are the same; and the share of the error that a change
# may leave: noise is fitted by something, always a little.
_SAME = 10 * FLOOR
_REMAINS = 0.1


def explains(before: float, after: float) -> bool:
    """Return True if a change that reduces the outputs' error from `before` to `after` is its
    cause.
    """
    return after <= _SAME and after <= before * _REMAINS


@dataclasses.dataclass(frozen=True)
class TensorChange:
    """A function of a tensor, and a description of its result: "flipped along axis 1"."""

    text: str
    apply: Function


def permuted_axes(values: np.ndarray) -> Iterator[TensorChange]:
    """Yield every other order of the axes, starting with those that keep the batch, axis 0.

    Orders that only move axes of size one are skipped, because they only change the shape.
    """
    rank = values.ndim
    if not 2 <= rank <= _RANK:
        return
    orders = sorted(itertools.permutations(range(rank)), key=lambda order: order[0] != 0)
    for order in orders:
        moved = [axis for axis in order if values.shape[axis] != 1]
        if moved != sorted(moved):
            yield TensorChange(
                _order_text(values, order), functools.partial(np.transpose, axes=order)
            )


def _order_text(values: np.ndarray, order: tuple[int, ...]) -> str:
    if values.ndim == 4:
        match order:
            case (0, 2, 3, 1):
                return "laid out as NHWC instead of NCHW"
            case (0, 3, 1, 2):
                return "laid out as NCHW instead of NHWC"
    moved = [axis for axis, source in enumerate(order) if axis != source]
    if len(moved) == 2:
        first, second = moved
        if moved == _spatial(values):
            return f"with height and width (axes {first} and {second}) transposed"
        return f"with axes {first} and {second} transposed"
    return f"with its axes permuted to {list(order)}"


def _spatial(values: np.ndarray) -> list[int]:
    """Return the axes of an image's height and width; none if the values are not a batch of
    images.
    """
    if values.ndim != 4:
        return []
    if values.shape[1] in _COLORS:
        return [2, 3]
    return [1, 2] if values.shape[3] in _COLORS else []


def flips(values: np.ndarray) -> Iterator[TensorChange]:
    """Yield the tensor reversed along each axis but the batch, and a picture along both of its."""
    spatial = _spatial(values)
    axes = [axis for axis in range(1, values.ndim) if values.shape[axis] > 1]
    for axis in axes:
        text = f"reversed along axis {axis}"
        if values.ndim == 4 and axis not in spatial and values.shape[axis] == 3:
            text = f"with its channels reversed (BGR for RGB, axis {axis})"
        elif axis in spatial:
            way = "vertically" if axis == spatial[0] else "horizontally"
            text = f"flipped {way} (axis {axis})"
        yield TensorChange(text, functools.partial(np.flip, axis=axis))
    if spatial and all(axis in axes for axis in spatial):
        yield TensorChange(
            "rotated by 180 degrees", functools.partial(np.flip, axis=tuple(spatial))
        )


def shifts(values: np.ndarray) -> Iterator[TensorChange]:
    """Yield the tensor moved by one place along each axis but the batch, around the end."""
    for axis in range(1, values.ndim):
        if values.shape[axis] < 3:
            continue  # of two elements, a shift is a flip
        for step in (1, -1):
            way = "forward" if step > 0 else "back"
            yield TensorChange(
                f"shifted {way} by one along axis {axis}",
                functools.partial(np.roll, shift=step, axis=axis),
            )


def softmax(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the softmax along an axis, in float64."""
    exponentials = np.exp(values - values.max(axis, keepdims=True))
    return np.asarray(exponentials / exponentials.sum(axis, keepdims=True))


def sigmoid(values: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + exp(-x)); an overflow correctly yields 0."""
    return np.asarray(1 / (1 + np.exp(-values)))


def unit_length(values: np.ndarray, axis: int) -> np.ndarray:
    """Return the values divided by their length along an axis."""
    return np.asarray(values / np.sqrt((values * values).sum(axis, keepdims=True)))
