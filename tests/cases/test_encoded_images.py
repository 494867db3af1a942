"""Encoded images: valid PNG files of exactly the size that an input has."""

import io

import numpy as np
import pytest
from PIL import Image

from convkit.cases.encoded_images import SMALLEST, draw_encoded
from convkit.worker.context import StageFailedError


@pytest.mark.parametrize("size", [SMALLEST, 73, 83, 84, 300, 1000, 65536, 200000])
def test_every_size_is_a_readable_image(size: int) -> None:
    drawn = draw_encoded((2, size), np.random.default_rng(0))
    assert (drawn.shape, drawn.dtype) == ((2, size), np.uint8)
    images = [np.asarray(Image.open(io.BytesIO(row.tobytes())).convert("RGB")) for row in drawn]
    assert images[0].shape == images[1].shape
    assert size < 1000 or images[0].std() > 1
    assert size < 1000 or not np.array_equal(images[0], images[1])


@pytest.mark.parametrize("shape", [(), (0,), (SMALLEST - 1,)])
def test_an_input_without_room_for_an_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(StageFailedError, match="at least 72 bytes"):
        draw_encoded(shape, np.random.default_rng(0))
