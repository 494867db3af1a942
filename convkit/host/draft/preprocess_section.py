"""Drafts `preprocess` of an input from the settings of the model's own processor."""

import json
from collections.abc import Iterator, Mapping

from convkit.host.draft.transformers_families import DraftInput
from convkit.host.recipe.keys.preprocessing import ONE_255TH, AudioPreprocess
from convkit.protocol.image_settings import image_constants
from convkit.protocol.json_codec import Json
from convkit.protocol.preprocessing_constants import ImageConstants

_IMAGES = "pixel_values"
_SOUNDS = ("input_features", "input_values")
# Settings that older files leave out, as the processors of their time behave.
_USUAL = {"do_resize": True, "do_rescale": True, "do_normalize": True, "resample": 2}


def preprocess_lines(settings: Mapping[str, Json], tensor: DraftInput) -> Iterator[str]:
    """Yield the lines below an input that say how it is prepared; none if that is unknown."""
    if tensor.name == _IMAGES and (constants := _image(settings)) is not None:
        shape = tensor.shape
        fixed = [size for size in shape[2:] if isinstance(size, int)]
        if len(shape) == 4 and (not fixed or constants.size == tuple(fixed)):
            yield "# What your app applies, from the model's processor; docs/preprocessing.md."
            yield "preprocess:"
            yield "  # files: [photo.png] # real images, through the model's own processor"
            yield "  image:"
            yield from (f"    {key}: {value}" for key, value in _written(constants).items())
    elif tensor.name in _SOUNDS and isinstance(settings.get("sampling_rate"), int):
        known = {key: settings.get(key) for key in AudioPreprocess.model_fields}
        yield "# What your app applies, from the model's processor; docs/preprocessing.md."
        yield "preprocess:"
        yield "  # files: [speech.wav] # real sounds, through the model's own processor"
        yield "  audio:"
        yield from (
            f"    {key}: {json.dumps(value)}" for key, value in known.items() if value is not None
        )


def _image(settings: Mapping[str, Json]) -> ImageConstants | None:
    size = settings.get("size")
    if isinstance(size, int) and not settings.get("do_center_crop"):
        settings = {**settings, "size": {"height": size, "width": size}}
    crop = settings.get("crop_size")
    if isinstance(crop, int):
        settings = {**settings, "crop_size": {"height": crop, "width": crop}}
    return image_constants({**_USUAL, **settings})


def _written(constants: ImageConstants) -> dict[str, str]:
    """Return the constants as a recipe writes them, without those that change nothing."""
    written: dict[str, str] = {
        "interpolation": constants.interpolation,
        "channels": constants.channels,
    }
    for key in ("resize", "crop", "mean", "std"):
        if value := getattr(constants, key):
            written[key] = json.dumps(value)
    written["scale"] = ONE_255TH if constants.scale == 1 / 255 else repr(constants.scale)
    order = ("resize", "interpolation", "crop", "channels", "scale", "mean", "std")
    return {key: written[key] for key in order if key in written}
