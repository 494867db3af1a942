"""The same elements in another shape or another order of axes."""

import dataclasses
import math

import numpy as np

from convkit.worker.cause.matching.relative_difference import CLOSE, relative_error
from convkit.worker.cause.matching.weight_derivation import permutations_of
from convkit.worker.cause.recording.mask_fill_values import HUGE, numbers, unfilled
from convkit.worker.cause.recording.tensor_sketches import TINY, is_flat

# Elements by which most wrong layouts are ruled out, and by which those of large values are ranked.
_EARLY, _RANKED = 128, 1 << 14


@dataclasses.dataclass(frozen=True)
class AxisLayout:
    """The graph's layout of a value of the original: permuted axes, then a different shape."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Return the original's values as the graph lays them out."""
        return np.ascontiguousarray(values.transpose(self.axes)).reshape(self.shape)

    def some(self, values: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Return the elements that `apply` would put in some places of the flattened result."""
        moved = values.transpose(self.axes)
        if moved.ndim == 0:  # which numpy does not unravel
            return np.broadcast_to(moved, places.shape)
        return moved[np.unravel_index(places, moved.shape)]


def layouts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> list[AxisLayout]:
    """Return every layout from one shape to another with the same number of elements.

    The plain one comes first; axes of size one are never moved, and equal results appear once.
    """
    if math.prod(shape) != math.prod(wanted):
        return []
    moving = [axis for axis, size in enumerate(shape) if size != 1]
    if len(moving) > 5:
        return [AxisLayout(tuple(range(len(shape))), wanted)]
    still = [axis for axis in range(len(shape)) if axis not in moving]
    return [
        AxisLayout((*still, *(moving[place] for place in order)), wanted)
        for order in permutations_of(len(moving))
    ]


def layout_of(expected: np.ndarray, found: np.ndarray, within: float = CLOSE) -> AxisLayout | None:
    """Return the layout that turns the original's values into the graph's; None if there is
    none.
    """
    found_with = nearest_layout(expected, found, within)
    return None if found_with is None else found_with[0]


def nearest_layout(
    expected: np.ndarray, found: np.ndarray, within: float
) -> tuple[AxisLayout, float] | None:
    """Return the layout that turns the original's values into the graph's, and the error it leaves;
    None if there is none.
    """
    if "c" in (expected.dtype.kind, found.dtype.kind):
        return None  # ONNX's operators compute with pairs of real numbers
    best, least = None, math.inf
    for layout in _possible(expected, found, within):
        error = relative_error(found, layout.apply(expected))
        if error <= within and error < least:
            best, least = layout, error
            if error == 0:
                break
    return None if best is None else (best, least)


def _possible(expected: np.ndarray, found: np.ndarray, within: float) -> list[AxisLayout]:
    """Return the layouts that some elements do not rule out: most are wrong, and comparing all
    elements under each is most of a search.
    """
    options = layouts(expected.shape, found.shape)
    if not options or not expected.size:
        return options
    limit = within * _largest_number(expected)
    places = _places(expected.size, _EARLY)
    own = numbers(found.ravel()[places])
    possible = []
    for layout in options:
        other = numbers(layout.some(expected, places))
        with np.errstate(all="ignore"):
            if not ((np.abs(own - other) > limit) & (np.abs(other) <= HUGE)).any():
                possible.append(layout)
    return possible


def _places(size: int, count: int) -> np.ndarray:
    """Return places of a flattened tensor: all of them, or as many at random. At equal steps, one
    would meet the same elements of an axis again and again.
    """
    if size <= count:
        return np.arange(size)
    return np.random.default_rng(0).integers(0, size, count)


def _largest_number(values: np.ndarray) -> float:
    """Return the largest magnitude, which bounds what `relative_error` divides by."""
    least, largest = float(values.min()), float(values.max())
    if least >= -HUGE and largest <= HUGE:
        return max(-least, largest, TINY)
    sizes = np.abs(numbers(values))
    return float(sizes[sizes <= HUGE].max(initial=TINY))


def likeliest_layout(expected: np.ndarray, found: np.ndarray) -> AxisLayout:
    """Return the layout under which two tensors correlate best, or the plain one."""
    options = layouts(expected.shape, found.shape)
    if expected.shape == found.shape or len(options) == 1 or is_flat(found):
        return options[0]
    return max(options, key=lambda layout: correlation(layout, expected, found))


def correlation(layout: AxisLayout, expected: np.ndarray, found: np.ndarray) -> float:
    """Return how alike two tensors are under a layout, 0 to 1, without regard to signs; large ones
    by some of their elements.
    """
    if not expected.size:
        return 0.0
    places = _places(expected.size, _RANKED)
    one = unfilled(numbers(layout.some(expected, places)))
    two = unfilled(numbers(found.ravel()[places]))
    with np.errstate(all="ignore"):
        one, two = np.nan_to_num(one - one.mean()), np.nan_to_num(two - two.mean())
        return float(abs(one @ two) / max(np.linalg.norm(one) * np.linalg.norm(two), TINY))
