"""A table of how a graph's output may be derived from the original's.

Each row compares an output of the graph with the original's, and yields pairs of tensors that are
equal if the row explains the difference. Nothing is run.
"""

import dataclasses
import functools
from collections.abc import Callable, Iterator

import numpy as np

from convkit.worker.cause.boundary.tensor_changes import (
    flips,
    permuted_axes,
    shifts,
    sigmoid,
    softmax,
    unit_length,
)

# Values that each fitted number must explain: with fewer, it fits by chance.
_VALUES_PER_NUMBER = 3
_DECIMALS = 5
_LARGEST_ORDER = 512
_SHOWN = 4
# A scale this near to 1, or an offset along an axis this near to 0, says nothing.
_NEUTRAL = 1e-5


@dataclasses.dataclass(frozen=True)
class OutputChange:
    """How an output differs from the original's: `corrected` equals `target` if `text` is true.

    If the change can be undone, `corrected` is computed from the graph's output. Otherwise (an
    argmax, a rounding), it is the output itself, and the target is computed from the original's.
    """

    text: str
    corrected: np.ndarray
    target: np.ndarray


Row = Callable[[np.ndarray, np.ndarray], Iterator[OutputChange]]


def _layout(found: np.ndarray, expected: np.ndarray) -> Iterator[OutputChange]:
    if found.shape != expected.shape and found.size == expected.size:
        text = f"of shape {list(found.shape)} instead of {list(expected.shape)}"
        yield OutputChange(text, found.reshape(expected.shape), expected)
    for row in (flips, permuted_axes, shifts):
        for change in row(expected):
            yield OutputChange(change.text, found, change.apply(expected))


def _order(found: np.ndarray, expected: np.ndarray) -> Iterator[OutputChange]:
    """Find each slice along an axis elsewhere in the original's: classes in a different order."""
    if found.shape != expected.shape:
        return
    for axis in range(found.ndim):
        count = found.shape[axis]
        if not 2 < count <= _LARGEST_ORDER or found.size > 1 << 22:
            continue
        mine = np.moveaxis(found, axis, 0).reshape(count, -1)
        theirs = np.moveaxis(expected, axis, 0).reshape(count, -1)
        order = [int(np.abs(theirs - row).max(axis=1).argmin()) for row in mine]
        if len(set(order)) == count and order != sorted(order):
            moved = [place for place in range(count) if order[place] != place]
            shown = ", ".join(f"{order[place]} at {place}" for place in moved[:_SHOWN])
            more = ", ..." if len(moved) > _SHOWN else ""
            text = (
                f"in a different order along axis {axis} ({len(moved)} of {count}: {shown}{more})"
            )
            yield OutputChange(text, found, np.take(expected, order, axis))


def _affine(found: np.ndarray, expected: np.ndarray) -> Iterator[OutputChange]:
    """Fit scale and offset: each alone, then both."""
    if found.shape != expected.shape or found.size < _VALUES_PER_NUMBER:
        return
    power = float((expected * expected).sum())
    scale = float((found * expected).sum()) / power if power else 0.0
    if scale and abs(scale - 1) > _NEUTRAL:
        text = "with its sign reversed" if abs(scale + 1) < _NEUTRAL else f"scaled by {scale:.6g}"
        yield OutputChange(text, found / scale, expected)
    offset = float((found - expected).mean())
    yield OutputChange(f"with an offset of {offset:.6g}", found - offset, expected)
    if found.size < 2 * _VALUES_PER_NUMBER - 1:
        return
    centered = expected - expected.mean()
    spread = float((centered * centered).sum())
    scale = float((found * centered).sum()) / spread if spread else 0.0
    if scale:
        offset = float(found.mean() - scale * expected.mean())
        text = f"scaled by {scale:.6g}, with an offset of {offset:.6g}"
        yield OutputChange(text, (found - offset) / scale, expected)


def _channels(found: np.ndarray, expected: np.ndarray) -> Iterator[OutputChange]:
    """Fit a scale, then an offset, for each slice along an axis."""
    if found.shape != expected.shape or found.ndim < 2:
        return
    for axis in range(1, found.ndim):
        count = found.shape[axis]
        if count < 2 or found.size < count * _VALUES_PER_NUMBER:
            continue
        others = tuple(each for each in range(found.ndim) if each != axis)
        power = (expected * expected).sum(others, keepdims=True)
        scales = (found * expected).sum(others, keepdims=True) / np.where(power > 0, power, 1)
        if scales.all() and np.abs(scales - 1).max() > _NEUTRAL:
            text = f"scaled along axis {axis}: {_deviating(scales.ravel(), 1.0)}"
            yield OutputChange(text, found / scales, expected)
        offsets = (found - expected).mean(others, keepdims=True)
        if told := _deviating(offsets.ravel(), 0.0):
            text = f"with an offset (a bias) along axis {axis}: {told}"
            yield OutputChange(text, found - offsets, expected)


def _deviating(numbers: np.ndarray, neutral: float) -> str:
    off = np.flatnonzero(np.abs(numbers - neutral) > _NEUTRAL)
    shown = ", ".join(f"{numbers[place]:.4g} at {place}" for place in off[:_SHOWN])
    return shown + (", ..." if len(off) > _SHOWN else "")


def _log_softmax(values: np.ndarray, axis: int) -> np.ndarray:
    return np.asarray(np.log(softmax(values, axis)))


def _functions(values: np.ndarray) -> Iterator[tuple[str, Callable[[np.ndarray], np.ndarray]]]:
    for axis in reversed(range(1, values.ndim)):
        if values.shape[axis] > 1:
            where = f" over axis {axis}"
            yield f"a softmax{where}", functools.partial(softmax, axis=axis)
            yield f"a log-softmax{where}", functools.partial(_log_softmax, axis=axis)
            yield f"an L2 normalization{where}", functools.partial(unit_length, axis=axis)
    yield "a sigmoid", sigmoid
    yield "a log-sigmoid", lambda x: np.log(sigmoid(x))
    yield "a tanh", np.tanh
    yield "a ReLU", lambda x: np.maximum(x, 0)
    yield "an exponential", np.exp
    yield "a logarithm", np.log
    yield "a square", np.square
    yield "a square root", np.sqrt
    yield "an absolute value", np.abs
    yield "a reciprocal", lambda x: 1 / x


def _activations(found: np.ndarray, expected: np.ndarray) -> Iterator[OutputChange]:
    if found.shape != expected.shape:
        return
    functions = list(_functions(expected))
    for name, function in functions:
        yield OutputChange(f"without {name}", function(found), expected)
        yield OutputChange(f"with {name} too many", found, function(expected))
    # One activation instead of another: undo the original's, then apply the other.
    for name, undone in _UNDONE.items():
        inner = undone(expected)
        for other, function in functions:
            if other.split(" over")[0] != name:
                yield OutputChange(f"with {other} instead of {name}", found, function(inner))


# Inverses of activations, up to values that the next activation ignores.
_UNDONE: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "a sigmoid": lambda x: np.log(x) - np.log1p(-x),
    "a softmax": np.log,
    "a log-softmax": lambda x: x,
    "a tanh": np.arctanh,
}


def _digits(found: np.ndarray, expected: np.ndarray) -> Iterator[OutputChange]:
    """Round the original's as the graph may: to decimals, to whole numbers, to a range."""
    if found.shape != expected.shape:
        return
    for decimals in range(_DECIMALS):
        text = "rounded to whole numbers" if not decimals else f"rounded to {decimals} decimals"
        yield OutputChange(text, found, np.round(expected, decimals))
    yield OutputChange("truncated to whole numbers", found, np.trunc(expected))
    yield OutputChange("rounded to float16", found, expected.astype(np.float16).astype(np.float64))
    low, high = float(found.min()), float(found.max())
    inside = (low < found) & (found < high)
    if inside.sum() < 2 * _VALUES_PER_NUMBER:
        return
    text = f"clipped to [{low:.6g}, {high:.6g}]"
    yield OutputChange(text, found, expected.clip(low, high))


def _labels(found: np.ndarray, expected: np.ndarray) -> Iterator[OutputChange]:
    for axis in range(expected.ndim):
        if expected.shape[axis] > 2:
            best = expected.argmax(axis)
            for target in (best, np.expand_dims(best, axis)):
                if target.shape == found.shape:
                    text = f"reduced to its argmax over axis {axis}"
                    yield OutputChange(text, found, target.astype(np.float64))


# The order matters: of two changes that both explain a difference, the first is named.
OUTPUT_CHANGES: dict[str, Row] = {
    "axes": _layout,
    "scale and offset": _affine,
    "activation": _activations,
    "order": _order,
    "digits": _digits,
    "channels": _channels,
    "labels": _labels,
}
# Rows that fit a number for each slice along an axis.
FITTED = ("channels",)
