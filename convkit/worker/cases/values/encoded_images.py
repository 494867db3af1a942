"""Images as the bytes of PNG files, for models that decode images themselves."""

import math
import struct
import zlib
from pathlib import Path

import numpy as np

from convkit.protocol.contract import TensorSpec
from convkit.worker.cases.values.pictures_and_sounds import draw_image
from convkit.worker.job_context import StageFailedError, UnfitDataError

# The size of a PNG file with one pixel; a smaller input has no room for an image.
SMALLEST = 72
_SIGNATURE = b"\x89PNG\r\n\x1a\n"
# A chunk's length, type and checksum.
_CHUNK = 12
# Ancillary, private and safe to copy: decoders skip it.
_PADDING = b"paDd"


def draw_encoded(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return the bytes of valid PNG files along the last axis, each of exactly its size; raises
    StageFailedError if that is too small.
    """
    size = shape[-1] if shape else 0
    if size < SMALLEST:
        raise StageFailedError(
            f"an encoded image has at least {SMALLEST} bytes, and the input has {size}: raise the"
            " axis's min"
        )
    files = [_png(size, random) for _ in range(math.prod(shape[:-1]))]
    return np.frombuffer(b"".join(files), dtype=np.uint8).reshape(shape)


def read_encoded(path: Path, spec: TensorSpec, shape: tuple[int, ...], key: str) -> np.ndarray:
    """Return the bytes of an image file along the last axis, the same in each row, followed by
    zeros, which decoders skip; raises UnfitDataError, which names the recipe's key.
    """
    if spec.dtype != "uint8" or not shape:
        problem = f"{path} is an image, and input {spec.name!r} is {spec.type_text}"
        fix = "Declare uint8 bytes along the last axis, or save the decoded values as .npy."
        raise UnfitDataError(key, problem, fix, tensor=spec.name)
    try:
        content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    except OSError as error:
        problem = f"{path} cannot be read ({error.strerror})"
        fix = "Correct the path, relative to the recipe's folder."
        raise UnfitDataError(key, problem, fix, tensor=spec.name) from error
    if content.size > shape[-1]:
        problem = f"{path} has {content.size} bytes, more than a case's {shape[-1]}"
        fix = f"Raise the min of {spec.shape[-1]!r} to {content.size}, or use a smaller file."
        raise UnfitDataError(key, problem, fix, tensor=spec.name)
    values = np.zeros(shape, np.uint8)
    values[..., : content.size] = content
    return values


def _png(size: int, random: np.random.Generator) -> bytes:
    """Return an RGB image, wider than high, in a PNG file of `size` bytes."""
    height = math.isqrt(size // 3) or 1
    while True:
        width = height + height // 3
        spare = size - _size(height, width)
        if spare == 0 or spare >= _CHUNK or height == 1:
            break
        height -= 1
    pixels = np.rint(255 * draw_image((height, width, 3), random)).astype(np.uint8)
    rows = np.pad(pixels.reshape(height, 3 * width), ((0, 0), (1, 0)))
    parts = [
        _SIGNATURE,
        _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        _chunk(_PADDING, bytes(spare - _CHUNK)) if spare >= _CHUNK else b"",
        _chunk(b"IDAT", zlib.compress(rows.tobytes(), 0)),
        _chunk(b"IEND", b""),
    ]
    # Decoders stop at IEND; too few bytes for a chunk follow it.
    return b"".join(parts).ljust(size, b"\0")


def _size(height: int, width: int) -> int:
    """Return the bytes of a file whose pixels are stored uncompressed."""
    stored = len(zlib.compress(bytes(height * (1 + 3 * width)), 0))
    return len(_SIGNATURE) + 3 * _CHUNK + 13 + stored


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
