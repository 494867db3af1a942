"""What the settings of transformers' image processors say, as a contract's constants."""

from collections.abc import Mapping
from typing import Any, get_args

from convkit.protocol.preprocessing_constants import ImageConstants, Interpolation

INTERPOLATIONS: tuple[Interpolation, ...] = get_args(Interpolation)
# Pillow's numbers, which transformers writes.
_METHODS: dict[int, Interpolation] = {
    0: "nearest",
    1: "lanczos",
    2: "bilinear",
    3: "bicubic",
    4: "box",
    5: "hamming",
}


def image_constants(settings: Mapping[str, Any]) -> ImageConstants | None:
    """Return what a processor applies; None if constants cannot say it (padding, crop_pct)."""
    if settings.get("do_pad") or settings.get("crop_pct") or settings.get("do_thumbnail"):
        return None
    resize = _size(settings.get("size")) if settings.get("do_resize") else None
    crop = _size(settings.get("crop_size")) if settings.get("do_center_crop") else None
    method = _METHODS.get(int(settings.get("resample") or 0))
    if method is None or (settings.get("do_resize") and resize is None) or isinstance(crop, int):
        return None
    scale = float(settings.get("rescale_factor", 1 / 255)) if settings.get("do_rescale") else 1.0
    normalizes = bool(settings.get("do_normalize"))
    return ImageConstants(
        resize=resize,
        crop=crop,
        interpolation=method,
        channels="bgr" if settings.get("do_flip_channel_order") else "rgb",
        scale=scale,
        mean=_triple(settings.get("image_mean")) if normalizes else (),
        std=_triple(settings.get("image_std")) if normalizes else (),
    )


def _size(written: object) -> tuple[int, int] | int | None:
    if isinstance(written, int):
        return written
    if not isinstance(written, Mapping):
        return None
    known = {key: value for key, value in written.items() if value is not None}
    if set(known) == {"height", "width"}:
        return int(known["height"]), int(known["width"])
    return int(known["shortest_edge"]) if set(known) == {"shortest_edge"} else None


def _triple(written: object) -> tuple[float, ...]:
    if isinstance(written, int | float):
        return (float(written),) * 3
    return tuple(map(float, written)) if isinstance(written, list | tuple) else ()
