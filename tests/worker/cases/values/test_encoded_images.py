"""Encoded images: valid PNG files of exactly the size that an input has."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from convkit.protocol.contract import TensorSpec
from convkit.worker.cases.values.encoded_images import SMALLEST, draw_encoded, read_encoded
from convkit.worker.job_context import StageFailedError, UnfitDataError


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


SPEC = TensorSpec("image", "uint8", ("rows", "bytes"))


def test_a_jpeg_file_is_read_whole_at_every_size(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "cat.jpg")
    size = (tmp_path / "cat.jpg").stat().st_size
    expected = np.asarray(Image.open(tmp_path / "cat.jpg"))
    for room in (size, size + 500):
        drawn = read_encoded(tmp_path / "cat.jpg", SPEC, (2, room), "the file")
        assert (drawn.shape, drawn.dtype) == ((2, room), np.uint8)
        for row in drawn:
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(row.tobytes()))), expected)


@pytest.mark.parametrize(
    ("name", "dtype", "message", "fix"),
    [
        ("cat.jpg", "uint8", "100 bytes, more than a case's 99", "min of 'bytes' to 100"),
        ("cat.jpg", "float32", "is an image, and input 'image' is float32", "Declare uint8"),
        ("dog.jpg", "uint8", "cannot be read", "Correct the path"),
    ],
)
def test_a_file_that_an_input_cannot_hold_is_refused(
    tmp_path: Path, name: str, dtype: str, message: str, fix: str
) -> None:
    (tmp_path / "cat.jpg").write_bytes(bytes(100))
    spec = TensorSpec("image", dtype, SPEC.shape)  # type: ignore[arg-type]
    with pytest.raises(UnfitDataError, match=message) as raised:
        read_encoded(tmp_path / name, spec, (1, 99), "the file")
    (finding,) = raised.value.findings
    assert finding.remedy is not None
    assert fix in finding.remedy.text
