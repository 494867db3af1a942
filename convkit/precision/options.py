"""What a target's options say of its precision. Standard library only: every build and verification
reads it.
"""

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


def is_undecided(options: dict[str, Json]) -> bool:
    """Say whether convkit is still to find what stays in float32."""
    wanted = options.get("precision")
    return isinstance(wanted, dict) and wanted.get("keep_float32") == "auto"


def low_precision(options: dict[str, Json]) -> LowPrecision | None:
    """Return what the key `precision` asks for; None for float32 (its absence too) and for
    quantisation.

    Nothing is kept in float32 yet where that is undecided.
    """
    wanted = options.get("precision", "float32")
    if wanted == "float32" or (isinstance(wanted, dict) and "quantize" in wanted):
        return None
    try:
        return decode(
            LowPrecision, wanted | {"keep_float32": []} if is_undecided(options) else wanted
        )
    except CodecError as error:
        raise StageFailedError(f"precision: {wanted!r} is no precision: {error}") from error
