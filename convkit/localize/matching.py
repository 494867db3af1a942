"""The same values on both sides: found by content, in any shape or order of axes."""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from convkit.localize.likeness import permutations_of
from convkit.localize.original import Recording, Value

# Parts of a tensor's rms. Two correct computations of one value stay well within it, after dozens
# of layers as well; smaller faults are found by computing each value anew from the original's own.
CLOSE = 1e-4
# Values beyond this are masks' "minus infinity", which every exporter writes differently.
_HUGE = 1e18
# Masks fill with a number far from all others, -1e4 or -1e9, beside which a difference between the
# scores themselves would vanish: fills are at least this large, and so many times all others.
_FILL, _APART = 1e3, 100.0
_TINY = 1e-30
_EARLY = 64
# What several operations in float32 may differ by, in parts of the rms.
_LAST_BITS = 8e-6


@dataclasses.dataclass(frozen=True)
class Layout:
    """The graph's layout of a value of the original: permuted axes, then a different shape."""

    axes: tuple[int, ...]
    shape: tuple[int, ...]

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Return the original's values as the graph lays them out."""
        return np.ascontiguousarray(values.transpose(self.axes)).reshape(self.shape)


@dataclasses.dataclass(frozen=True)
class Match:
    """A value of the graph that is one of the original's, within `error` parts of its rms."""

    name: str
    value: int
    layout: Layout
    error: float


def worst_output_error(recording: Recording, found: Mapping[str, np.ndarray]) -> float:
    """Return the outputs' largest error, in parts of their rms; infinite if one is missing.

    Infinite also if the original returns no element, as a detector that sees nothing: a change that
    empties the graph's outputs, too, would look like the cause.
    """
    if not any(recording.output(name).size for name in recording.outputs):
        return math.inf
    return max(
        relative_error(found[name], recording.output(name)) if name in found else math.inf
        for name in recording.outputs
    )


def largest_error(expected: Mapping[str, np.ndarray], found: Mapping[str, np.ndarray]) -> float:
    """Return the largest error of several tensors, in parts of their rms."""
    return max(
        relative_error(found[name], values) if name in found else math.inf
        for name, values in expected.items()
    )


def relative_error(found: np.ndarray, expected: np.ndarray) -> float:
    """Return the largest difference relative to the expected values' RMS.

    Infinity if shapes differ or only one side is finite; values beyond 1e18 agree with each other
    if their signs do. Values that a mask filled in are compared in parts of themselves, and the
    others in parts of their own RMS.
    """
    if found.shape != expected.shape:
        return math.inf
    if not found.size:
        return 0.0
    own, other = _numbers(found), _numbers(expected)
    if not np.array_equal(np.isnan(own), np.isnan(other)):
        return math.inf
    own, other = np.nan_to_num(own, nan=0.0), np.nan_to_num(other, nan=0.0)
    far = np.abs(other) > _HUGE
    if not np.array_equal(far, np.abs(own) > _HUGE) or (
        far.any() and (np.sign(own[far]) != np.sign(other[far])).any()
    ):
        return math.inf
    own, other = np.where(far, 0, own), np.where(far, 0, other)
    filled = _filled(other)
    rms = float(np.sqrt(np.square(np.where(filled, 0, other)).mean()))
    scale = np.where(filled, np.abs(other), max(rms, _TINY))
    return float((np.abs(own - other) / scale).max())


def _filled(values: np.ndarray) -> np.ndarray:
    """Return where a mask filled in a number that is far from all others."""
    sizes = np.abs(values)
    large = sizes >= _FILL
    if not large.any() or large.all():
        return np.zeros(values.shape, bool)
    least, others = sizes[large].min(), sizes[~large].max()
    return large & bool(least >= _APART * others > 0)


def worst_values(found: np.ndarray, expected: np.ndarray) -> tuple[float, float] | None:
    """Return the found and the expected value of the element that is off by most."""
    if found.shape != expected.shape or not found.size or found.dtype.kind not in "fiub":
        return None
    with np.errstate(all="ignore"):
        error = np.abs(_numbers(found) - _numbers(expected))
    place = int(np.argmax(np.where(np.isnan(error), np.inf, error)))
    return float(found.flat[place]), float(expected.flat[place])


def layout_of(expected: np.ndarray, found: np.ndarray, within: float = CLOSE) -> Layout | None:
    """Return the layout that turns the original's values into the graph's; None if there is
    none.
    """
    if "c" in (expected.dtype.kind, found.dtype.kind):
        return None  # ONNX's operators compute with pairs of real numbers
    largest = _largest_number(expected)
    best, least = None, math.inf
    for layout in layouts(expected.shape, found.shape):
        laid_out = layout.apply(expected)
        if _differ_early(found, laid_out, within * largest):
            continue
        error = relative_error(found, laid_out)
        if error <= within and error < least:
            best, least = layout, error
            if error == 0:
                break
    return best


def _differ_early(found: np.ndarray, expected: np.ndarray, limit: float) -> bool:
    """Return True if one of the first elements alone rules out a layout: most are wrong, and
    comparing all elements under each is most of a search.
    """
    one, other = (_numbers(each.ravel()[:_EARLY]) for each in (found, expected))
    with np.errstate(all="ignore"):
        return bool(((np.abs(one - other) > limit) & (np.abs(other) <= _HUGE)).any())


def _largest_number(values: np.ndarray) -> float:
    """Return the largest magnitude, which bounds what `relative_error` divides by."""
    sizes = np.abs(_numbers(values))
    return float(sizes[sizes <= _HUGE].max(initial=_TINY))


def layouts(shape: tuple[int, ...], wanted: tuple[int, ...]) -> list[Layout]:
    """Return every layout from one shape to another with the same number of elements.

    The plain one comes first; axes of size one are never moved, and equal results appear once.
    """
    if math.prod(shape) != math.prod(wanted):
        return []
    moving = [axis for axis, size in enumerate(shape) if size != 1]
    if len(moving) > 5:
        return [Layout(tuple(range(len(shape))), wanted)]
    still = [axis for axis in range(len(shape)) if axis not in moving]
    return [
        Layout((*still, *(moving[place] for place in order)), wanted)
        for order in permutations_of(len(moving))
    ]


def likeliest_layout(expected: np.ndarray, found: np.ndarray) -> Layout:
    """Return the layout under which two tensors correlate best, or the plain one."""
    options = layouts(expected.shape, found.shape)
    if expected.shape == found.shape or len(options) == 1 or is_flat(found):
        return options[0]
    return max(options, key=lambda layout: correlation(layout.apply(expected), found))


def correlation(first: np.ndarray, second: np.ndarray) -> float:
    """Return how alike two tensors of as many elements are, 0 to 1, without regard to signs."""
    one, two = (_unfilled(each.astype(np.float64)).ravel() for each in (first, second))
    with np.errstate(all="ignore"):
        one, two = np.nan_to_num(one - one.mean()), np.nan_to_num(two - two.mean())
        return float(abs(one @ two) / max(np.linalg.norm(one) * np.linalg.norm(two), _TINY))


class Sketches:
    """Figures of many tensors that no reordering of elements changes, to find equal ones fast."""

    def __init__(self, arrays: Mapping[str, np.ndarray]) -> None:
        self._names: dict[int, list[str]] = {}
        rows: dict[int, list[np.ndarray]] = {}
        for name, array in arrays.items():
            if array.dtype.kind in "fiub" and array.size > 1 and not is_flat(array):
                self._names.setdefault(array.size, []).append(name)
                rows.setdefault(array.size, []).append(sketch(array))
        self._rows = {size: np.stack(each) for size, each in rows.items()}

    def near(self, figures: np.ndarray, size: int, within: float) -> Sequence[str]:
        """Return the names of tensors of one size with figures close to the given ones."""
        rows = self._rows.get(size)
        if rows is None:
            return ()
        with np.errstate(all="ignore"):
            off = np.abs(rows - figures) <= within * (figures[0] + _TINY)
        return [self._names[size][place] for place in np.flatnonzero(off.all(axis=1))]


def sketch(array: np.ndarray) -> np.ndarray:
    """Return rms, mean, mean magnitude, least, largest and mean of the ten largest."""
    values = _unfilled(np.nan_to_num(_numbers(array).ravel(), nan=0.0))
    rms = float(np.sqrt((values * values).mean()))
    largest = np.partition(values, -10)[-10:] if values.size > 10 else values
    return np.array(
        [rms, values.mean(), np.abs(values).mean(), values.min(), values.max(), largest.mean()]
    )


def _unfilled(values: np.ndarray) -> np.ndarray:
    """Return values with zeros for infinities and for what a mask filled in."""
    finite = np.where(np.abs(values) > _HUGE, 0.0, values)
    return np.where(_filled(finite), 0.0, finite)


def is_flat(array: np.ndarray) -> bool:
    """Return True if all elements are equal: such a tensor matches many others by chance."""
    return bool((array == array.flat[0]).all()) if array.size else True


def match_values(
    recording: Recording, found: Mapping[str, np.ndarray], within: float = CLOSE
) -> dict[str, Match]:
    """Return the graph's values that are the original's, by name; the nearest original for each.

    Weights and constants of the original are not matched: many values equal them by chance. Values
    that hardly vary, such as a softmax of few and similar scores, are nearly the same whatever they
    were computed from: they match by what varies, or up to the last bits.
    """
    sketches = Sketches(found)
    matches: dict[str, Match] = {}
    for value in recording.values:
        if not _matchable(value, recording):
            continue
        near = sketches.near(sketch(value.array), value.array.size, 10 * within)
        if not near:
            continue
        limit = max(within * _variation(value.array), min(within, _LAST_BITS))
        for name in near:
            if name in matches and matches[name].error == 0:
                continue
            layout = layout_of(value.array, found[name], limit)
            if layout is None:
                continue
            error = relative_error(found[name], layout.apply(value.array))
            if name not in matches or error < matches[name].error:
                matches[name] = Match(name, value.index, layout, error)
    return matches


def _variation(array: np.ndarray) -> float:
    """Return the standard deviation of the elements that are not zero, in parts of their rms."""
    values = _unfilled(np.nan_to_num(_numbers(array).ravel(), nan=0.0))
    values = values[values != 0]
    power = float((values * values).mean()) if values.size else 0.0
    return float(values.std()) / math.sqrt(power) if power > 0 else 1.0


def _matchable(value: Value, recording: Recording) -> bool:
    return (
        value.array.size > 1
        and value.array.dtype.kind in "fiub"
        and (value.kind == "input" or value.index not in recording.fixed)
        and not is_flat(value.array)
    )


def _numbers(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64, copy=False)
