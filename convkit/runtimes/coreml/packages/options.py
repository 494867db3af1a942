"""A Core ML target's own options, as passed to the worker."""

import dataclasses
from typing import Literal

Shapes = Literal["range", "enumerated"]


@dataclasses.dataclass(frozen=True)
class CompressionOptions:
    """How weights are stored: see `Compression` of the recipe."""

    weights: Literal["int8", "int4", "palette"] | None = None
    bits: int | None = None
    block_size: int | None = None
    prune: float | None = None
    keep: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ProgramOptions:
    """`minimum` is a deployment target (iOS17); `shapes` selects how variable sizes are
    declared. `states`: what steps feeds back stays in the program. `images`: images that the
    program normalizes are of Core ML's ImageType.
    """

    minimum: str
    shapes: Shapes
    compression: CompressionOptions | None = None
    states: bool = False
    images: bool = False
