"""What a target's options say of quantisation. Standard library only: every build and verification
reads it.
"""

import dataclasses
from typing import Literal

from convkit.codec import CodecError, Json, decode
from convkit.worker.context import StageFailedError

Kind = Literal["dynamic-int8", "static-int8", "int4-weights"]
Format = Literal["qdq", "operators"]
Method = Literal["minmax", "entropy", "percentile"]

DEFAULT_PERCENTILE = 99.99
DEFAULT_BLOCK_SIZE = 32


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How the ranges of activations are found; `file` is an .npz file, None: the verification's
    cases.
    """

    method: Method = "minmax"
    percentile: float | None = None
    file: str | None = None


@dataclasses.dataclass(frozen=True)
class Quantization:
    """Weights, and with int8 activations too, as whole numbers with a scale: see
    `QuantizedPrecision` of the recipe.

    `keep_float32` is `auto` until a plan has been made. `reduce_range` gives weights seven bits
    instead of eight, so that no processor's 16-bit sums of two products saturate. `symmetric`: zero
    points are zero and biases in float32, as TensorRT demands.
    """

    quantize: Kind
    keep_float32: tuple[str, ...] | Literal["auto"] = ()
    per_channel: bool = True
    format: Format | None = None
    calibration: Calibration | None = None
    block_size: int | None = None
    reduce_range: bool = False
    symmetric: bool = False

    @property
    def patterns(self) -> tuple[str, ...]:
        """The modules to keep in float32; none where a plan has yet to find them."""
        return () if self.keep_float32 == "auto" else self.keep_float32

    @property
    def uses_qdq(self) -> bool:
        """True for QuantizeLinear and DequantizeLinear around float operators."""
        return self.format == "qdq" or (self.format is None and self.quantize == "static-int8")

    @property
    def calibrated(self) -> Calibration:
        """How ranges are found, with the defaults in place."""
        return self.calibration or Calibration()

    def keeping(self, patterns: tuple[str, ...]) -> "Quantization":
        """Return the same with other exceptions."""
        return dataclasses.replace(self, keep_float32=patterns)


def quantization(options: dict[str, Json]) -> Quantization | None:
    """Return what the key `precision` asks for; None where it asks for no quantisation."""
    wanted = options.get("precision")
    if not isinstance(wanted, dict) or "quantize" not in wanted:
        return None
    try:
        found = decode(Quantization, wanted)
    except CodecError as error:
        raise StageFailedError(f"precision: {wanted!r} is no quantisation: {error}") from error
    if found.format == "qdq" and found.quantize == "dynamic-int8":
        raise StageFailedError(
            "precision: dynamic-int8 is made of onnxruntime's own operators; write format:"
            " operators"
        )
    return found
