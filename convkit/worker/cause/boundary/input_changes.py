"""A table of how a graph may interpret an input differently than the original.

Each row yields changes to the input's values. If the graph is correct when fed the changed values,
the change is the cause.
"""

import functools
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from convkit.worker.cause.boundary.tensor_changes import (
    Function,
    TensorChange,
    flips,
    permuted_axes,
    shifts,
)


class Normalization(NamedTuple):
    """How images are normalized: (x - mean) / deviation, per channel in RGB order."""

    name: str
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


# Sources: torchvision.models' documentation (ImageNet), OpenAI's CLIP and transformers'
# image_utils (OPENAI_CLIP_MEAN, IMAGENET_STANDARD_MEAN).
NORMALIZATIONS = (
    Normalization("ImageNet's", (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    Normalization(
        "CLIP's", (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    ),
)

# The graph's expectation, scale and offset.
_AFFINE: tuple[tuple[str, float, float], ...] = (
    ("scaled by 255 (0 to 255 instead of 0 to 1)", 255.0, 0.0),
    ("scaled by 1/255 (0 to 1 instead of 0 to 255)", 1 / 255, 0.0),
    ("normalized to [-1, 1] from [0, 1]: 2 x - 1", 2.0, -1.0),
    ("scaled back to [0, 1] from [-1, 1]: it normalizes a second time", 0.5, 0.5),
    ("normalized to [-1, 1] from [0, 255]: x / 127.5 - 1", 1 / 127.5, -1.0),
    ("scaled back to [0, 255] from [-1, 1]: it normalizes a second time", 127.5, 127.5),
    ("with its sign reversed", -1.0, 0.0),
    ("inverted: 1 - x", -1.0, 1.0),
)


def _integers(values: np.ndarray) -> Iterator[TensorChange]:
    """Yield whole numbers shifted, counted anew, and masks inverted or without an effect."""
    if values.dtype.kind not in "iub" or not values.size:
        return
    if set(np.unique(values)) <= {0, 1}:
        yield TensorChange("inverted (1 where it has 0, and 0 where it has 1)", _inverted)
        yield TensorChange("as all ones: the original ignores it", np.ones_like)
        yield TensorChange("as all zeros: the original ignores it", np.zeros_like)
    if values.dtype.kind == "b":
        return
    for step in (1, -1, 2, -2):
        size = "one" if abs(step) == 1 else "two"
        way = "larger" if step > 0 else "smaller"
        yield TensorChange(
            f"shifted: each value {size} {way} (off by {size})",
            functools.partial(_moved, step=step),
        )
    if values.ndim > 1:
        yield TensorChange("as positions counted from 0 in each row", _positions)


def _moved(values: np.ndarray, step: int) -> np.ndarray:
    return np.asarray((values + step).astype(values.dtype))


def _inverted(values: np.ndarray) -> np.ndarray:
    return ~values if values.dtype.kind == "b" else (1 - values).astype(values.dtype)


def _positions(values: np.ndarray) -> np.ndarray:
    return np.broadcast_to(np.arange(values.shape[-1], dtype=values.dtype), values.shape).copy()


def _affine(values: np.ndarray) -> Iterator[TensorChange]:
    """Yield floats with the usual scales, and images with the usual normalizations."""
    if values.dtype.kind != "f":
        return
    for text, scale, offset in _AFFINE:
        yield TensorChange(text, _scaled(scale, offset))
    if (axis := channel_axis(values)) is not None:
        yield from _normalizations(values, axis)


def _normalizations(values: np.ndarray, axis: int) -> Iterator[TensorChange]:
    shape = [1] * values.ndim
    shape[axis] = 3
    for each in NORMALIZATIONS:
        mean = np.reshape(each.mean, shape)
        deviation = np.reshape(each.deviation, shape)
        for largest, unit in ((1.0, ""), (255.0, " of values from 0 to 255")):
            scale, offset = 1 / (deviation * largest), -mean / deviation
            yield TensorChange(
                f"normalized with {each.name} mean and deviation{unit}, which it does not do"
                " itself",
                _scaled(scale, offset),
            )
            yield TensorChange(
                f"without {each.name} normalization{unit}: it normalizes a second time (mean and"
                " deviation)",
                _scaled(1 / scale, -offset / scale),
            )


def channel_axis(values: np.ndarray) -> int | None:
    """Return the color axis of a batch of images; None if the values are not one."""
    axes = [axis for axis in (1, 3) if values.ndim == 4 and values.shape[axis] == 3]
    return axes[0] if axes else None


def _reversed_and_scaled(values: np.ndarray) -> Iterator[TensorChange]:
    """Yield images with their colors reversed, and scaled or normalized as well."""
    axis = channel_axis(values)
    if axis is None or values.dtype.kind != "f":
        return
    for change in _affine(values):
        yield TensorChange(
            f"with its channels reversed (BGR for RGB, axis {axis}) and {change.text}",
            functools.partial(_after_flip, change=change, axis=axis),
        )


def _after_flip(values: np.ndarray, change: TensorChange, axis: int) -> np.ndarray:
    return change.apply(np.flip(values, axis))


def _scaled(scale: np.ndarray | float, offset: np.ndarray | float) -> Function:
    return lambda x: np.asarray(x.astype(np.float64) * scale + offset).astype(x.dtype)


# The order matters: of two changes that both explain a difference, the first is named.
INPUT_CHANGES: dict[str, Callable[[np.ndarray], Iterator[TensorChange]]] = {
    "whole numbers": _integers,
    "flipped": flips,
    "axes": permuted_axes,
    "scale and offset": _affine,
    "shifted": shifts,
    "colors and scale": _reversed_and_scaled,
}
