"""What turns a decoded image, sound or text into a model's input: the constants that apps and
graphs apply. Standard library only.

They are part of a tensor's contract, so every built model carries them.
"""

import dataclasses
from typing import Literal

Interpolation = Literal["nearest", "box", "bilinear", "hamming", "bicubic", "lanczos"]
ChannelOrder = Literal["rgb", "bgr"]
ImageLayout = Literal["channels_first", "channels_last"]
Side = Literal["left", "right"]


@dataclasses.dataclass(frozen=True)
class ImageConstants:
    """How a decoded RGB image, uint8 [rows, columns, 3], becomes a model's input.

    In this order: `resize` to rows and columns, or to the length of the shorter edge; `crop` of
    the center, to rows and columns; `channels`; then (value * `scale` - `mean`) / `std` for each
    channel, in the order of `channels`; then `layout`. Empty `mean` and `std` change nothing.
    """

    resize: tuple[int, int] | int | None = None
    crop: tuple[int, int] | None = None
    interpolation: Interpolation = "bilinear"
    channels: ChannelOrder = "rgb"
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    layout: ImageLayout = "channels_first"

    @property
    def factors(self) -> tuple[float, float, float]:
        """What each channel's values are multiplied with."""
        red, green, blue = (self.scale / each for each in self.std or (1.0, 1.0, 1.0))
        return red, green, blue

    @property
    def offsets(self) -> tuple[float, float, float]:
        """What is added to each channel's values afterwards."""
        means, deviations = self.mean or (0.0, 0.0, 0.0), self.std or (1.0, 1.0, 1.0)
        red, green, blue = (-m / s for m, s in zip(means, deviations, strict=True))
        return red, green, blue

    @property
    def size(self) -> tuple[int, int] | None:
        """The rows and columns that every image has in the end; None if they depend on it."""
        if self.crop is not None:
            return self.crop
        return self.resize if isinstance(self.resize, tuple) else None


@dataclasses.dataclass(frozen=True)
class AudioConstants:
    """How sound becomes a model's features, under transformers' names; None: not declared.

    `sampling_rate` and `hop_length` are samples per second and between two frames, `n_fft` the
    samples of a frame, `feature_size` the number of mel filters, `chunk_length` the seconds that
    shorter sounds are padded to.
    """

    sampling_rate: int
    feature_size: int | None = None
    n_fft: int | None = None
    hop_length: int | None = None
    chunk_length: int | None = None
    padding_value: float | None = None
    do_normalize: bool | None = None


@dataclasses.dataclass(frozen=True)
class TextConstants:
    """How texts become tokens, under transformers' names; None: not declared."""

    padding_side: Side | None = None
    truncation_side: Side | None = None
    add_special_tokens: bool | None = None
    max_length: int | None = None


@dataclasses.dataclass(frozen=True)
class Preprocessing:
    """What precedes one input of a model. Exactly one kind of constants is given.

    `fused`: the built model itself applies what follows `crop`, so its input is the image, uint8
    [batch, rows, columns, 3].
    """

    fused: bool = False
    image: ImageConstants | None = None
    audio: AudioConstants | None = None
    text: TextConstants | None = None
