"""A Core ML target's own options, as the worker gets them."""

import dataclasses
from collections.abc import Mapping
from typing import Literal

from convkit.codec import CodecError, Json, decode
from convkit.worker.context import StageFailedError

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
    """`minimum` is a deployment target (iOS17); `shapes` says how sizes that vary are declared."""

    minimum: str
    shapes: Shapes
    compression: CompressionOptions | None = None


def program_options(options: Mapping[str, Json]) -> ProgramOptions:
    """Return a target's options; raises StageFailedError for others than the host gives."""
    try:
        return decode(
            ProgramOptions, {key: options.get(key) for key in ("minimum", "shapes", "compression")}
        )
    except CodecError as error:
        raise StageFailedError(f"the target's options are damaged: {error}") from error
