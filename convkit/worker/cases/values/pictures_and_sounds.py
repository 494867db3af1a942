"""Pictures and sound for models that were trained on them: their noise means nothing to such a
model, and an output that is all zeros proves nothing.
"""

import numpy as np

# Channels of an image; an axis of another size is not one.
_CHANNELS = (1, 3, 4)


def draw_image(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return images with values from 0 to 1: a smooth field, a few flat shapes with sharp edges,
    and rows of short strokes like text.

    The last two axes are height and width; the two before the last, if only the last has the size
    of an image's channels.
    """
    spatial = _spatial_axes(shape)
    order = [axis for axis in range(len(shape)) if axis not in spatial] + list(spatial)
    turned = [shape[axis] for axis in order]
    height, width = [1, 1, *turned[len(order) - len(spatial) :]][-2:]
    planes = int(np.prod(turned[: len(order) - len(spatial)], dtype=np.int64))
    pictures = np.stack([_plane(height, width, random) for _ in range(planes)] or [np.zeros(0)])
    return pictures.reshape(turned).transpose(np.argsort(order)) if shape else pictures.reshape(())


def _spatial_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    rank = len(shape)
    if rank >= 3 and shape[-1] in _CHANNELS and shape[-3] not in _CHANNELS:
        return rank - 3, rank - 2
    return tuple(range(max(rank - 2, 0), rank))


def _plane(height: int, width: int, random: np.random.Generator) -> np.ndarray:
    rows, columns = np.linspace(0.0, 1.0, height), np.linspace(0.0, 1.0, width)
    phases = random.uniform(0.0, 2 * np.pi, 4)
    plane = 0.6 + 0.2 * np.outer(np.sin(2.5 * rows + phases[0]), np.cos(3.0 * columns + phases[1]))
    plane += 0.1 * np.outer(np.sin(7.0 * rows + phases[2]), np.sin(6.0 * columns + phases[3]))
    for _ in range(3):
        top, bottom = np.sort(random.integers(0, height + 1, 2))
        left, right = np.sort(random.integers(0, width + 1, 2))
        plane[top:bottom, left:right] = random.uniform(0.2, 1.0)
    _write_lines(plane, random)
    return np.clip(plane, 0.0, 1.0)


def _write_lines(plane: np.ndarray, random: np.random.Generator) -> None:
    """Draw dark strokes on a plane, in lines, like letters."""
    height, width = plane.shape
    letter = max(3, min(height, width) // 16)
    for top in range(letter // 2, height - letter, 3 * letter):
        for left in range(letter, width - letter, letter):
            if random.random() < 0.3:
                continue
            across = top + int(random.integers(letter))
            plane[top : top + letter, left : left + max(1, letter // 5)] = 0.05
            plane[across : across + max(1, letter // 5), left : left + letter * 2 // 3] = 0.05


def draw_audio(shape: tuple[int, ...], random: np.random.Generator) -> np.ndarray:
    """Return sound with values from 0 to 1 around 0.5, samples along the last axis: a voice of six
    harmonics that swells and fades, with a little noise.
    """
    length = shape[-1] if shape else 1
    voices = int(np.prod(shape[:-1], dtype=np.int64))
    time = np.arange(length)
    sound = np.empty((voices, length))
    for voice in range(voices):
        pitch = random.uniform(0.006, 0.02)  # cycles a sample: 100 to 320 Hz at 16 kHz
        envelope = 0.5 + 0.5 * np.sin(2 * np.pi * time / 4000 + random.uniform(0, 2 * np.pi))
        harmonics = sum(
            np.sin(2 * np.pi * pitch * number * time + random.uniform(0, 2 * np.pi)) / number
            for number in range(1, 7)
        )
        sound[voice] = 0.2 * envelope * harmonics + 0.01 * random.standard_normal(length)
    return np.clip(0.5 + 0.5 * sound, 0.0, 1.0).reshape(shape)
