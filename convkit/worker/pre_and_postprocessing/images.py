"""Applies the constants of a contract to images, with Pillow and numpy: what an app does."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from convkit.protocol.preprocessing_constants import ImageConstants, Preprocessing
from convkit.worker.job_context import StageFailedError, UnfitDataError


def read_image(path: Path, key: str, tensor: str) -> np.ndarray:
    """Return an image file as RGB, uint8 [rows, columns, 3]; raises UnfitDataError.

    `key` is the recipe's key that names the file, `tensor` the input that it is for.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as opened:
            return np.asarray(opened.convert("RGB"))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        problem = f"{path.name} cannot be read as an image: {error}"
        fix = "Name files that Pillow opens, such as .png or .jpg."
        raise UnfitDataError(key, problem, fix, tensor=tensor) from error


def sized(constants: ImageConstants, picture: np.ndarray) -> np.ndarray:
    """Return an RGB image, uint8 [rows, columns, 3], resized and cropped."""
    if constants.resize is not None:
        picture = _resized(constants, picture)
    return picture if constants.crop is None else _cropped(picture, *constants.crop)


def normalized(constants: ImageConstants, pixels: np.ndarray) -> np.ndarray:
    """Return the original's input for a sized image: float32, [3, rows, columns] for
    channels_first.
    """
    ordered = in_order(constants, pixels).astype(np.float32) * np.float32(constants.scale)
    if constants.mean:
        ordered = ordered - _by_channel(constants, constants.mean)
    if constants.std:
        ordered = ordered / _by_channel(constants, constants.std)
    return ordered


def prepared_batch(given: Preprocessing, images: Sequence[np.ndarray]) -> np.ndarray:
    """Return a built model's input for decoded images; raises StageFailedError for others."""
    constants = given.image
    assert constants is not None
    if not len(images):
        raise StageFailedError("no images; pass a list of arrays")
    made = []
    for place, image in enumerate(map(np.asarray, images)):
        if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3:
            raise StageFailedError(
                f"image {place} is {image.dtype} {list(image.shape)}; pass decoded RGB images,"
                " uint8 [rows, columns, 3]"
            )
        pixels = sized(constants, image)
        made.append(pixels if given.fused else normalized(constants, pixels))
    shapes = sorted({each.shape for each in made})
    if len(shapes) > 1:
        raise StageFailedError(
            f"images of one batch need one size; they become {' and '.join(map(str, shapes))}"
        )
    return np.stack(made)


def in_order(constants: ImageConstants, pixels: np.ndarray) -> np.ndarray:
    """Return a sized image with its channels in the contract's order and place."""
    if constants.channels == "bgr":
        pixels = pixels[..., ::-1]
    return pixels.transpose(2, 0, 1) if constants.layout == "channels_first" else pixels


def _by_channel(constants: ImageConstants, values: tuple[float, ...]) -> np.ndarray:
    found = np.asarray(values, dtype=np.float32)
    return found[:, None, None] if constants.layout == "channels_first" else found


def _resized(constants: ImageConstants, picture: np.ndarray) -> np.ndarray:
    from PIL import Image

    wanted = constants.resize
    if isinstance(wanted, int):
        rows, columns = picture.shape[:2]
        short = min(rows, columns)
        # The longer edge is cut off to whole pixels, as transformers and torchvision do.
        wanted = (int(wanted * rows / short), int(wanted * columns / short))
    assert wanted is not None
    if picture.shape[:2] == wanted:
        return picture
    image: Image.Image = Image.fromarray(np.ascontiguousarray(picture))
    method = Image.Resampling[constants.interpolation.upper()]
    return np.asarray(image.resize((wanted[1], wanted[0]), resample=method))


def _cropped(picture: np.ndarray, rows: int, columns: int) -> np.ndarray:
    """Return the center; an image that is too small is surrounded with black."""
    missing = [
        max(0, want - have) for want, have in zip((rows, columns), picture.shape, strict=False)
    ]
    if any(missing):
        # An odd row or column goes to the top or left, as in transformers.
        around = [(short - short // 2, short // 2) for short in missing]
        picture = np.pad(picture, [*around, (0, 0)])
    top, left = (picture.shape[0] - rows) // 2, (picture.shape[1] - columns) // 2
    return picture[top : top + rows, left : left + columns]
