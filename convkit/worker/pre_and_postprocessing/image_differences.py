"""Compares what a contract's constants make of images with what the original's processor makes,
and names the constants that differ.

A constant is named only if setting it right makes both agree.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from convkit.protocol.findings.finding import Finding, Place, Remedy
from convkit.protocol.image_settings import INTERPOLATIONS, image_constants
from convkit.protocol.json_codec import Json, encode
from convkit.protocol.preprocessing_constants import ImageConstants
from convkit.worker.pre_and_postprocessing.images import in_order, normalized, sized
from convkit.worker.pre_and_postprocessing.original_processor import OriginalProcessor

# How far two implementations of one interpolation may differ at any pixel, in steps of 1/255:
# Pillow and torchvision round to whole steps at different moments.
STEPS = 1.01
# How far what follows interpolation may differ, in the same steps. A mean of 0.485 in place of
# 0.48145 moves every value by 0.9.
EXACT_STEPS = 0.1
# So many wrong constants are undone together, besides scale, mean and std.
_MOST_CHANGES = 4

# A smaller factor means that a channel does not depend on the pixels.
_NOTHING = 1e-12

_CODES = {
    "scale": "C521",
    "mean": "C521",
    "std": "C521",
    "channels": "C522",
    "layout": "C523",
    "resize": "C524",
    "crop": "C524",
    "interpolation": "C524",
}


@dataclasses.dataclass(frozen=True)
class _Fit:
    """How the original's values follow from sized pixels: factor and offset of each channel, and
    the largest distance from that, in steps of 1/255.
    """

    factors: np.ndarray
    offsets: np.ndarray
    steps: float


def image_findings(
    name: str,
    place: str,
    declared: ImageConstants,
    original: OriginalProcessor,
    pictures: Sequence[np.ndarray],
) -> list[Finding]:
    """Return what differs between the constants of an input and the original's processor.

    `place` is the key path of the input's `preprocess`. C521: scale, mean or std; C522: the order
    of the channels; C523: the layout; C524: resizing or cropping; C520: something else.
    """
    wanted = [original.image(picture) for picture in pictures]
    found = [normalized(declared, sized(declared, picture)) for picture in pictures]
    if _agree(declared, _fit(declared, wanted, pictures)):
        return []
    known = image_constants(original.settings)
    right = _right_constants(declared, known, wanted, pictures)
    evidence: dict[str, Json] = {"processor": original.name, "largest": _largest(found, wanted)}
    if right is None:
        return [_unexplained(name, place, original, found, wanted, evidence)]
    groups: dict[str, list[str]] = {}
    for field, code in _CODES.items():
        if getattr(right, field) != getattr(declared, field):
            groups.setdefault(code, []).append(field)
    proof = "With all changes reported for it" if len(groups) > 1 else "With this change"
    proof = f"{proof}, the constants match {original.name}."
    return [
        _named(name, place, code, (declared, right), fields, proof, evidence)
        for code, fields in groups.items()
    ]


def _right_constants(
    declared: ImageConstants,
    known: ImageConstants | None,
    wanted: Sequence[np.ndarray],
    pictures: Sequence[np.ndarray],
) -> ImageConstants | None:
    """Return the declared constants, with the fewest changes that reproduce the original."""
    changes = [*_changes(declared, known, wanted[0].shape)]
    for count in range(_MOST_CHANGES + 1):
        fits: list[tuple[float, int, ImageConstants, _Fit]] = []
        for combination in itertools.combinations(changes, count):
            changed = dict(combination)
            if len(changed) < count:
                continue
            trial = dataclasses.replace(declared, **changed)
            fit = _fit(trial, wanted, pictures)
            if fit is not None and fit.steps <= STEPS:
                fits.append((fit.steps, len(fits), trial, fit))
        if fits:
            _, _, trial, fit = min(fits)
            return _with_values(trial, fit, known)
    return None


def _changes(
    declared: ImageConstants, known: ImageConstants | None, shape: tuple[int, ...]
) -> Iterator[tuple[str, Any]]:
    """Yield the constants that decide which pixel goes where, each with another value."""
    yield "channels", "bgr" if declared.channels == "rgb" else "rgb"
    other = "channels_last" if declared.layout == "channels_first" else "channels_first"
    if shape[2 if other == "channels_last" else 0] == 3:
        yield "layout", other
    if known is None:
        size = shape[1:] if shape[0] == 3 else shape[:2]
        if declared.resize != size:
            yield "resize", size
        if declared.crop is not None:
            yield "crop", None
        methods: Sequence[str] = INTERPOLATIONS
    else:
        for field in ("resize", "crop"):
            if getattr(known, field) != getattr(declared, field):
                yield field, getattr(known, field)
        methods = (known.interpolation,)
    yield from (("interpolation", each) for each in methods if each != declared.interpolation)


def _fit(
    constants: ImageConstants, wanted: Sequence[np.ndarray], pictures: Sequence[np.ndarray]
) -> _Fit | None:
    """Fit the original's values by a factor and an offset for each channel; None if the shapes
    differ, or the original's values do not follow the pixels at all.
    """
    axis = 0 if constants.layout == "channels_first" else 2
    pixels = [in_order(constants, sized(constants, each)) for each in pictures]
    if any(one.shape != other.shape for one, other in zip(pixels, wanted, strict=True)):
        return None
    x, y = _by_channel(pixels, axis), _by_channel(wanted, axis)
    spread = x - x.mean(axis=1, keepdims=True)
    squares = (spread**2).sum(axis=1)
    factors = np.where(
        squares > 0, (spread * y).sum(axis=1) / np.maximum(squares, 1e-12), constants.factors
    )
    if not (np.abs(factors) > _NOTHING).all():
        return None
    offsets = y.mean(axis=1) - factors * x.mean(axis=1)
    off = np.abs(factors[:, None] * x + offsets[:, None] - y).max(axis=1)
    return _Fit(factors, offsets, float((off / np.abs(factors)).max()))


def _by_channel(images: Sequence[np.ndarray], axis: int) -> np.ndarray:
    """Return all values of each channel, float64 [channels, values]."""
    flat = [np.moveaxis(each, axis, 0).reshape(each.shape[axis], -1) for each in images]
    return np.concatenate(flat, axis=1).astype(np.float64)


def _agree(constants: ImageConstants, fit: _Fit | None) -> bool:
    return fit is not None and fit.steps <= STEPS and _same_values(constants, fit)


def _same_values(constants: ImageConstants, fit: _Fit) -> bool:
    """Say whether scale, mean and std reproduce the fit, at both ends of the pixels' range."""
    factors, offsets = np.asarray(constants.factors), np.asarray(constants.offsets)
    limit = EXACT_STEPS * np.abs(fit.factors)
    at_black, at_white = offsets - fit.offsets, (factors - fit.factors) * 255
    return bool((np.abs(at_black) <= limit).all() and (np.abs(at_black + at_white) <= limit).all())


def _with_values(trial: ImageConstants, fit: _Fit, known: ImageConstants | None) -> ImageConstants:
    """Return constants with the fitted scale, mean and std, in the processor's numbers if these
    match.
    """
    if _same_values(trial, fit):
        return trial
    if known is not None:
        own = dataclasses.replace(trial, scale=known.scale, mean=known.mean, std=known.std)
        if _same_values(own, fit):
            return own
    deviations = (1 / 255) / fit.factors
    means = -fit.offsets * deviations
    return dataclasses.replace(
        trial,
        scale=1 / 255,
        mean=tuple(float(f"{each:.5g}") for each in means),
        std=tuple(float(f"{each:.5g}") for each in deviations),
    )


def _named(
    name: str,
    place: str,
    code: str,
    constants: tuple[ImageConstants, ImageConstants],
    fields: Sequence[str],
    proof: str,
    evidence: dict[str, Json],
) -> Finding:
    """Return the finding about some declared constants; `constants` are these and the right
    ones.
    """
    declared, right = constants
    texts = [_difference(field, declared, right) for field in fields]
    change = {f"{place}.image.{field}": _written(field, getattr(right, field)) for field in fields}
    written = ", ".join(f"{field}: {_text(field, getattr(right, field))}" for field in fields)
    return Finding(
        code,
        f"{name!r}: {'; '.join(texts)}. {proof}",
        Place(tensor=name),
        evidence,
        Remedy(f"Write {written} in the recipe and in the app.", change, proven=True),
    )


def _difference(field: str, declared: ImageConstants, right: ImageConstants) -> str:
    """Return one constant that differs, and what that means."""
    have, want = getattr(declared, field), getattr(right, field)
    numbers = f"{field} is {_text(field, have)}, the original's is {_text(field, want)}"
    if field == "scale" and have == 255 * want:
        return f"{numbers}: values are not divided by 255"
    if field == "scale" and np.isclose(have * 255, want):
        return f"{numbers}: values are divided by 255 twice"
    if field in ("mean", "std") and not have:
        return f"{field} is missing, the original's is {_text(field, want)}"
    if field in ("mean", "std") and not want:
        return f"{field} is {_text(field, have)}, the original has none"
    if field == "channels":
        return f"{numbers}: red and blue are swapped"
    return numbers


def _written(field: str, value: object) -> Json:
    """Return a constant as a recipe writes it."""
    if field == "scale" and value == 1 / 255:
        return "1/255"
    return encode(value) or None


def _text(field: str, value: object) -> str:
    written = _written(field, value)
    if isinstance(written, list):
        return f"[{', '.join(f'{each:g}' for each in written)}]"
    return f"{written:.6g}" if isinstance(written, float) else str(written or "none")


def _unexplained(
    name: str,
    place: str,
    original: OriginalProcessor,
    found: Sequence[np.ndarray],
    wanted: Sequence[np.ndarray],
    evidence: dict[str, Json],
) -> Finding:
    shapes = f"{list(found[0].shape)} and {list(wanted[0].shape)}"
    same = found[0].shape == wanted[0].shape
    how = f"by up to {evidence['largest']:.3g}" if same else f"in their shapes: {shapes}"
    return Finding(
        "C520",
        f"{name!r}: what the constants make of an image and what {original.name} makes differ"
        f" {how}, and no change of a few constants explains it.",
        Place(tensor=name),
        evidence,
        Remedy(f"Compare {place}.image with the settings of {original.name}, one by one."),
    )


def _largest(found: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> float:
    """Return the largest difference; infinite if shapes differ."""
    return max(
        float(np.abs(one.astype(np.float64) - other).max()) if one.shape == other.shape else np.inf
        for one, other in zip(found, wanted, strict=True)
    )
