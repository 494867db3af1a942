"""Values that are passed between parts in the wrong convention: one correction at a time."""

import functools
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy as np

from convkit.worker.cause.matching.weight_derivation import is_near
from convkit.worker.join.other_wirings import Kinds, WiringChange
from convkit.worker.join.part_flow import Wiring, calls_of

# How a box of four numbers may be written, and how each form becomes its corners
# (left, top, right, bottom) and is made from them.
_Convert = Callable[[np.ndarray], np.ndarray]
# Probabilities nearer to 0 or 1 have no logarithm in float32.
_LEAST = 1e-9
# Outputs that agree to this fraction of their RMS are the same values, summed otherwise.
_SAME = 1e-4


def _corners_of_center(boxes: np.ndarray) -> np.ndarray:
    center, half = boxes[..., :2], boxes[..., 2:] / 2
    return np.concatenate([center - half, center + half], axis=-1)


def _center_of_corners(boxes: np.ndarray) -> np.ndarray:
    first, last = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([(first + last) / 2, last - first], axis=-1)


def _corners_of_sized(boxes: np.ndarray) -> np.ndarray:
    first, size = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([first, first + size], axis=-1)


def _sized_of_corners(boxes: np.ndarray) -> np.ndarray:
    first, last = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([first, last - first], axis=-1)


def _transposed(boxes: np.ndarray) -> np.ndarray:
    return boxes[..., [1, 0, 3, 2]]


_FORMATS: dict[str, tuple[_Convert, _Convert]] = {
    "corners (left, top, right, bottom)": (np.asarray, np.asarray),
    "center and size (x, y, width, height)": (_corners_of_center, _center_of_corners),
    "corner and size (left, top, width, height)": (_corners_of_sized, _sized_of_corners),
    "corners with rows first (top, left, bottom, right)": (_transposed, _transposed),
}


def _converted(boxes: np.ndarray, corners: _Convert, form: _Convert) -> np.ndarray:
    return form(corners(boxes))


def _shifted(values: np.ndarray, offset: int) -> np.ndarray:
    return values + np.asarray(offset, values.dtype)


def other_conventions(wiring: Wiring, kinds: Kinds) -> Iterator[WiringChange]:
    """Yield values in another convention: whole numbers that count from elsewhere, boxes in another
    format, and vectors that are to have the norm 1.
    """
    used = [value for value in _used(wiring) if value in kinds]
    for value in used:
        if np.dtype(str(kinds[value][1])).kind in "iu":
            yield from _offsets(wiring, value, kinds)
    for value in used:
        shape, dtype = kinds[value]
        if isinstance(shape, tuple) and shape[-1:] == (4,) and np.dtype(str(dtype)).kind == "f":
            yield from _boxes(wiring, value)
    calls = {name for call in calls_of(wiring.flow) for name in call.inputs.values()}
    for value in used:
        shape, dtype = kinds[value]
        if value in calls and isinstance(shape, tuple) and len(shape) > 1 and shape[-1] > 1:
            yield from _norms(wiring, value) if np.dtype(str(dtype)).kind == "f" else ()


def other_scales(
    wiring: Wiring, values: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> Iterator[WiringChange]:
    """Yield the outputs of each call, multiplied by the factor that brings them nearest to the
    original's `expected` outputs (a temperature or a scale that is missing, or there twice), then
    with a constant added, if that makes them equal.
    """
    for call in calls_of(wiring.flow):
        returned = {
            name: source
            for name, source in wiring.flow.outputs.items()
            if source.startswith(f"{call.name}.")
            and expected[name].dtype.kind == "f"
            and values[source].shape == expected[name].shape
        }
        if not returned:
            continue
        found = _flat([values[each] for each in returned.values()])
        for factor, offset in _scales(found, _flat([expected[each] for each in returned])):
            yield _scale_change(wiring, call.part, returned, factor, offset)


def _flat(arrays: Iterable[np.ndarray]) -> np.ndarray:
    return np.concatenate([each.astype(np.float64).ravel() for each in arrays])


def _scales(found: np.ndarray, wanted: np.ndarray) -> Iterator[tuple[float, float]]:
    """Yield factors and constants that bring `found` nearest to `wanted`."""
    square = float(found @ found)
    factor = float(wanted @ found) / square if square > 0 else 0.0
    if factor and np.isfinite(factor):
        yield factor, 0.0
    # Fewer values than this lie on one line by chance.
    if found.size < 4 or not (np.isfinite(found).all() and np.isfinite(wanted).all()):
        return
    yield from _fitting(1.0, float((wanted - found).mean()), found, wanted)
    if found.std() > 0:
        slope, rest = np.polyfit(found, wanted, 1)
        yield from _fitting(float(slope), float(rest), found, wanted)


def _fitting(
    factor: float, offset: float, found: np.ndarray, wanted: np.ndarray
) -> Iterator[tuple[float, float]]:
    if factor and offset and is_near(factor * found + offset, wanted, _SAME):
        yield factor, offset


def _scale_change(
    wiring: Wiring, part: str, returned: Mapping[str, str], factor: float, offset: float
) -> WiringChange:
    listed = ", ".join(map(repr, returned))
    how, what, must = [], [], []
    if factor != 1.0:
        how.append(f"multiplied by {1 / factor:.4g}")
        what.append("a factor, such as a temperature or its logarithm")
        must.append(f"be {factor:.4g} times as large")
    if offset:
        how.append(f"plus {-offset / factor:.4g}")
        what.append("a constant, such as a bias")
        must.append(f"then have {offset:.4g} added" if must else f"have {offset:.4g} added")
    return WiringChange(
        "C578",
        wiring.flow,
        f"part {part!r} returns {listed} {', '.join(how)}",
        f"Look in part {part!r} for {' and '.join(what)}, that is missing or applied twice: results"
        f" must {' and '.join(must)}.",
        corrected=tuple(returned.values()),
        correction=functools.partial(_scaled, factor=factor, offset=offset),
    )


def _scaled(values: np.ndarray, factor: float, offset: float) -> np.ndarray:
    return (values * factor + offset).astype(values.dtype)


def other_activations(wiring: Wiring, values: Mapping[str, np.ndarray]) -> Iterator[WiringChange]:
    """Yield scores that lack an activation, if they cannot be probabilities, or otherwise scores
    that both the part that returns them and the one that reads them bring between 0 and 1.
    """
    for value in _used(wiring):
        scores = values.get(value)
        if scores is None or scores.dtype.kind != "f" or not scores.size or not scores.ndim:
            continue
        bounded = bool((scores >= 0.0).all() and (scores <= 1.0).all())
        for name, (activation, inverse) in _ACTIVATIONS.items():
            yield WiringChange(
                "C518",
                wiring.flow,
                f"{value!r} gets {name} twice" if bounded else f"{value!r} lacks {name}",
                f"Apply {name} to {value} once: in the part that returns it, or in what reads it.",
                corrected=(value,),
                correction=inverse if bounded else activation,
            )


def _sigmoid(scores: np.ndarray) -> np.ndarray:
    half = np.tanh(scores.astype(np.float64) / 2) / 2  # does not overflow
    return (0.5 + half).astype(scores.dtype)


def _logit(scores: np.ndarray) -> np.ndarray:
    probabilities = scores.astype(np.float64).clip(_LEAST, 1 - _LEAST)
    return (np.log(probabilities) - np.log1p(-probabilities)).astype(scores.dtype)


def _softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores.astype(np.float64) - scores.max(axis=-1, keepdims=True))
    return (powers / powers.sum(axis=-1, keepdims=True)).astype(scores.dtype)


def _before_softmax(scores: np.ndarray) -> np.ndarray:
    """Return what a softmax was applied to, up to a constant in each row. They add up to 1, as they
    do if they come from a softmax themselves; another softmax removes the constant.
    """
    logarithms = np.log(scores.astype(np.float64).clip(_LEAST))
    missing = 1.0 - logarithms.sum(axis=-1, keepdims=True)
    return (logarithms + missing / scores.shape[-1]).astype(scores.dtype)


# What makes probabilities of scores, and the scores of probabilities.
_ACTIVATIONS: dict[str, tuple[_Convert, _Convert]] = {
    "a sigmoid": (_sigmoid, _logit),
    "a softmax": (_softmax, _before_softmax),
}


def _norms(wiring: Wiring, value: str) -> Iterator[WiringChange]:
    yield WiringChange(
        "C578",
        wiring.flow,
        f"{value!r} is not divided by its norm along the last axis, and the next part expects that",
        f"Divide {value} by its norm along the last axis.",
        corrected=(value,),
        correction=_normalized,
    )


def _normalized(values: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(values.astype(np.float64), axis=-1, keepdims=True)
    return (values / np.where(norms == 0.0, 1.0, norms)).astype(values.dtype)


def _used(wiring: Wiring) -> list[str]:
    """Return the values that calls read, and those that are outputs of the whole."""
    read = [value for call in calls_of(wiring.flow) for value in call.inputs.values()]
    carried = [each.value for step in wiring.flow.steps for each in getattr(step, "carried", ())]
    return list(dict.fromkeys([*read, *carried, *wiring.flow.outputs.values()]))


def _offsets(wiring: Wiring, value: str, kinds: Kinds) -> Iterator[WiringChange]:
    """Yield offsets of one, and of the sizes that occur: positions that leave out a prefix, such as
    the tokens of an image, are off by its length.
    """
    sizes = {size for shape, _ in kinds.values() if isinstance(shape, tuple) for size in shape}
    for size in sorted({1} | {size for size in sizes if size > 1}):
        for offset in (size, -size):
            verb = "too small" if offset > 0 else "too large"
            yield WiringChange(
                "C515",
                wiring.flow,
                f"{value!r} is {size} {verb}",
                f"Let {value} be {size} {'more' if offset > 0 else 'less'} in every call.",
                corrected=(value,),
                correction=functools.partial(_shifted, offset=offset),
            )


def _boxes(wiring: Wiring, value: str) -> Iterator[WiringChange]:
    for (present, (corners, _)), (wanted, (_, form)) in itertools.permutations(_FORMATS.items(), 2):
        yield WiringChange(
            "C516",
            wiring.flow,
            f"{value!r} has boxes as {present}, and {wanted} is expected",
            f"Convert the boxes of {value} to {wanted}.",
            corrected=(value,),
            correction=functools.partial(_converted, corners=corners, form=form),
        )
