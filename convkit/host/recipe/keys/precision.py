"""The element type of a target's weights and arithmetic."""

from collections.abc import Callable, Iterator
from typing import Annotated, Literal, Self, get_args

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from convkit.host.recipe.checks.names_axes_and_sizes import FaultsError, RecipeFault
from convkit.host.recipe.keys.field_types import MODULES_PATTERN, NPZ_PATTERN, RecipeModel, Switch
from convkit.protocol import messages
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import LowPrecision, Quantization, QuantizationKind
from convkit.protocol.same_fields import taken_from

PrecisionName = Literal["float32", "float16", "bfloat16"]
LowName = Literal["float16", "bfloat16"]

Patterns = tuple[Annotated[str, Field(pattern=MODULES_PATTERN)], ...]
Auto = Literal["auto"]


def _kept_kind(value: object) -> str | None:
    """Return the union tag that `keep_float32` seems to mean; None if unclear."""
    if isinstance(value, str):
        return "auto" if value == "auto" else None
    return "patterns" if isinstance(value, list | tuple) else None


Kept = Annotated[
    Annotated[Patterns, Tag("patterns")] | Annotated[Auto, Tag("auto")],
    Discriminator(
        _kept_kind,
        custom_error_type="alternatives",
        custom_error_message=(
            "write auto, or a list of module paths such as [encoder.layer.*.attention]"
        ),
    ),
]


def _switch_kind(value: object) -> str | None:
    """Return the union tag of a switch that may be `auto`; None if unclear."""
    return "switch" if isinstance(value, bool) else "auto" if value == "auto" else None


BitsSwitch = Annotated[
    Annotated[Switch, Tag("switch")] | Annotated[Auto, Tag("auto")],
    Discriminator(
        _switch_kind,
        custom_error_type="alternatives",
        custom_error_message="write auto, true or false",
    ),
]


class _WithExceptions(RecipeModel):
    """A precision with modules that are exempt from it."""

    keep_float32: Kept = Field(
        (),
        description=(
            "modules that stay in float32, as patterns over module paths (including everything"
            " below, unless the pattern ends with a dot); auto: convkit searches for a small set"
            " that meets the tolerance"
        ),
        examples=[["encoder.layer.*.attention"], "auto"],
    )

    @field_validator("keep_float32")
    @classmethod
    def _each_once(cls, patterns: Patterns | Auto) -> Patterns | Auto:
        faults = [
            RecipeFault((i,), f"{pattern!r} is listed twice; remove one")
            for i, pattern in enumerate(patterns if patterns != "auto" else ())
            if pattern in patterns[:i]
        ]
        if faults:
            raise FaultsError(faults)
        return patterns

    @property
    def is_auto(self) -> bool:
        """True if convkit is to find the modules."""
        return self.keep_float32 == "auto"

    def with_exceptions(self, name: str) -> str:
        """Return a precision's name and its exceptions, on one line."""
        if not self.keep_float32:
            return name
        return (
            f"{name}, float32:"
            f" {'auto' if self.keep_float32 == 'auto' else ', '.join(self.keep_float32)}"
        )


class MixedPrecision(_WithExceptions):
    """A low precision with exceptions."""

    default: LowName = Field(
        description="element type of the weights and the arithmetic", examples=["float16"]
    )
    saturate: Switch = Field(
        default=False,
        description=(
            "true: constants beyond the type's range become its largest finite value instead of"
            " infinity"
        ),
    )

    @classmethod
    def of(cls, precision: "Precision") -> Self | None:
        """Return a low precision with its exceptions, written either way; None for any other."""
        if isinstance(precision, MixedPrecision):
            return cls.model_validate(precision.model_dump())
        return cls(default=precision) if precision in get_args(LowName) else None

    def for_worker(self, place: Callable[[str], str]) -> LowPrecision:  # noqa: ARG002 - names no file
        """Return it in the workers' form."""
        return LowPrecision(self.default, self.keep_float32, self.saturate)

    def __str__(self) -> str:
        """Return it on one line: `float16 saturated, float32: encoder.layer.*.attention`."""
        return self.with_exceptions(f"{self.default} saturated" if self.saturate else self.default)


class Calibration(RecipeModel):
    """How static quantization calibrates the ranges of activations."""

    method: Literal["minmax", "entropy", "percentile"] = Field(
        "minmax", description="minmax: the whole range; entropy, percentile: without its outliers"
    )
    percentile: Annotated[float, Field(strict=True, gt=50, le=100)] | None = Field(
        None,
        description="with method: percentile, the share of values kept, in percent; default 99.99",
    )
    file: Annotated[str, Field(pattern=NPZ_PATTERN)] | None = Field(
        None,
        description=(
            "an .npz file with one array per input; the first axis counts samples; default: the"
            " verification cases"
        ),
        examples=["data/calibration.npz"],
    )

    @model_validator(mode="after")
    def _percentile_has_its_method(self) -> Self:
        if self.percentile is not None and self.method != "percentile":
            raise FaultsError(
                [
                    RecipeFault(
                        ("percentile",), "requires method: percentile; add that, or remove this"
                    )
                ]
            )
        return self


class QuantizedPrecision(_WithExceptions):
    """Integer weights with a scale and, with int8, integer activations."""

    quantize: QuantizationKind = Field(
        description=(
            "dynamic-int8: activations are scaled at run time; static-int8: by calibrated ranges; "
            "int4-weights: weights only, in blocks"
        ),
        examples=["dynamic-int8"],
    )
    per_channel: Switch = Field(
        default=True, description="one scale per output channel instead of per tensor"
    )
    reduce_range: BitsSwitch = Field(
        "auto",
        description=(
            "seven-bit weights, for CPUs whose sums of two int8 products saturate (x86"
            " without VNNI); auto: if it is measured that they do, and that seven bits are better"
        ),
    )
    equalize: BitsSwitch = Field(
        "auto",
        description=(
            "scales channels that share a scale until they are alike, with no change of what is"
            " computed in float32; auto: with keep_float32: auto, if it is measured that it helps"
        ),
    )
    format: Literal["qdq", "operators"] | None = Field(
        None,
        description=(
            "qdq: QuantizeLinear and DequantizeLinear around float operators (default with"
            " static-int8); operators: onnxruntime's own quantized operators (default with the"
            " others)"
        ),
    )
    symmetric: Switch = Field(
        default=False,
        description=(
            "true: zero points are zero and biases stay in float32, as some runtimes require"
        ),
    )
    calibration: Calibration | None = Field(
        None,
        description="with static-int8: how ranges are calibrated",
        examples=[{"method": "entropy"}],
    )
    block_size: Literal[16, 32, 64, 128, 256] | None = Field(
        None, description="with int4-weights: weights that share a scale; default 32"
    )

    @model_validator(mode="after")
    def _keys_fit(self) -> Self:
        faults = []
        if self.calibration is not None and self.quantize != "static-int8":
            faults.append(
                RecipeFault(("calibration",), f"{self.quantize} needs no calibration; remove it")
            )
        if self.block_size is not None and self.quantize != "int4-weights":
            faults.append(
                RecipeFault(("block_size",), f"{self.quantize} does not use blocks; remove it")
            )
        if self.format == "qdq" and self.quantize == "dynamic-int8":
            message = (
                "dynamic-int8 only has onnxruntime's own operators; write operators, or remove it"
            )
            faults.append(RecipeFault(("format",), message))
        if faults:
            raise FaultsError(faults)
        return self

    @property
    def may_equalize(self) -> bool:
        """True if channels are equalized, or may be."""
        return self.equalize is True or (self.equalize == "auto" and self.is_auto)

    def with_room(self) -> Iterator[dict[str, Json]]:
        """Yield the same with settings that lose less, of those that a recipe does not turn on."""
        written = self.model_dump(mode="json", exclude_unset=True)
        if not self.per_channel:
            yield written | {"per_channel": True}
        if self.equalize is not True:
            yield written | {"equalize": True}
        if self.reduce_range is False:
            yield written | {"reduce_range": True}

    def with_other_ranges(self) -> Iterator[dict[str, Json]]:
        """Yield the same with ranges of activations that come from elsewhere: less of what is rare,
        and of each call.
        """
        written = self.model_dump(mode="json", exclude_unset=True)
        if self.quantize != "static-int8":
            return
        given = self.calibration or Calibration()
        if given.method == "minmax":
            calibration = given.model_dump(mode="json", exclude_unset=True)
            yield written | {"calibration": calibration | {"method": "percentile"}}
        own = {"calibration", "format", "quantize"}
        kept = {name: value for name, value in written.items() if name not in own}
        yield {"quantize": "dynamic-int8", **kept}

    def for_worker(self, place: Callable[[str], str]) -> Quantization:
        """Return it in the workers' form; `place` returns the location of the calibration file."""
        given = self.calibration
        calibration = None
        if given is not None:
            file = place(given.file) if given.file is not None else None
            calibration = messages.Calibration(given.method, given.percentile, file)
        narrow = self.reduce_range is True  # who measures it replaces `auto`
        even = None if self.equalize == "auto" and self.may_equalize else self.may_equalize
        return taken_from(
            Quantization, self, calibration=calibration, reduce_range=narrow, equalize=even
        )

    def __str__(self) -> str:
        """Return it on one line: `dynamic-int8, float32: lm_head`."""
        return self.with_exceptions(self.quantize)


def _kind(value: object) -> str | None:
    """Return the tag of the alternative that a precision was meant to be; None if unknown."""
    match value:
        case str():
            return "PrecisionName" if value in get_args(PrecisionName) else None
        case dict():
            return "QuantizedPrecision" if "quantize" in value else "MixedPrecision"
        case MixedPrecision() | QuantizedPrecision():
            return type(value).__name__
        case _:
            return None


Precision = Annotated[
    Annotated[PrecisionName, Tag("PrecisionName")]
    | Annotated[MixedPrecision, Tag("MixedPrecision")]
    | Annotated[QuantizedPrecision, Tag("QuantizedPrecision")],
    Discriminator(
        _kind,
        custom_error_type="alternatives",
        custom_error_message=(
            "write float32, float16, bfloat16, {default: float16, keep_float32: [modules] or auto, "
            "saturate: true} or {quantize: dynamic-int8}"
        ),
    ),
]
