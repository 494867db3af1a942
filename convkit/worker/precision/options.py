"""What a target's options say of its precision. Standard library only: every build and verification reads it."""

import dataclasses

from convkit.codec import CodecError, Json, decode
from convkit.tensors import DType
from convkit.worker.context import StageFailedError


@dataclasses.dataclass(frozen=True)
class LowPrecision:
    """A precision below float32: see `MixedPrecision` of the recipe."""

    default: DType
    keep_float32: tuple[str, ...] = ()
    saturate: bool = False


def low_precision(options: dict[str, Json]) -> LowPrecision | None:
    """Return what the key `precision` asks for; None for float32, which is what its absence means too."""
    wanted = options.get("precision", "float32")
    if wanted == "float32":
        return None
    try:
        return decode(LowPrecision, wanted)
    except CodecError as error:
        raise StageFailedError(f"precision: {wanted!r} is no precision: {error}") from error
