"""A Core ML target's own options, as passed to the worker."""

from typing import Literal

from convkit.protocol.values.frozen_values import FrozenValue

Shapes = Literal["range", "enumerated"]


class CompressionOptions(FrozenValue):
    """How weights are stored: see `Compression` of the recipe."""

    weights: Literal["int8", "int4", "palette"] | None = None
    bits: int | None = None
    block_size: int | None = None
    prune: float | None = None
    keep: tuple[str, ...] = ()


class ProgramOptions(FrozenValue):
    """`minimum` is a deployment target (iOS17); `shapes` selects how variable sizes are
    declared. `states`: what steps feeds back stays in the program. `images`: images that the
    program normalizes are of Core ML's ImageType.
    """

    minimum: str
    shapes: Shapes
    compression: CompressionOptions | None = None
    states: bool = False
    images: bool = False
