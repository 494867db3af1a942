"""The element type of a target's weights and arithmetic."""

from typing import Annotated, Literal, Self, get_args

from pydantic import Discriminator, Field, Tag, field_validator

from convkit.recipe.consistency import Fault, FaultsError
from convkit.recipe.fields import MODULES_PATTERN, RecipeModel, Switch

PrecisionName = Literal["float32", "float16", "bfloat16"]
LowName = Literal["float16", "bfloat16"]


class MixedPrecision(RecipeModel):
    """A low precision with exceptions."""

    default: LowName = Field(description="element type of the weights and the arithmetic", examples=["float16"])
    keep_float32: tuple[Annotated[str, Field(pattern=MODULES_PATTERN)], ...] = Field(
        (),
        description="modules that stay in float32, as patterns over their paths; each names all that lies below it too",
        examples=[["encoder.layer.*.attention"]],
    )
    saturate: Switch = Field(
        default=False,
        description="true: constants beyond the type's range become its largest finite value instead of infinity",
    )

    @field_validator("keep_float32")
    @classmethod
    def _each_once(cls, patterns: tuple[str, ...]) -> tuple[str, ...]:
        faults = [
            Fault((i,), f"{pattern!r} stands in this list already; remove it")
            for i, pattern in enumerate(patterns)
            if pattern in patterns[:i]
        ]
        if faults:
            raise FaultsError(faults)
        return patterns

    @classmethod
    def of(cls, precision: "Precision") -> Self | None:
        """Return a low precision with its exceptions, however it was written; None for float32."""
        if isinstance(precision, MixedPrecision):
            return cls.model_validate(precision.model_dump())
        return None if precision == "float32" else cls(default=precision)

    def __str__(self) -> str:
        """Return it on one line: `float16 saturated, float32: encoder.layer.*.attention`."""
        name = f"{self.default} saturated" if self.saturate else self.default
        return f"{name}, float32: {', '.join(self.keep_float32)}" if self.keep_float32 else name


def _kind(value: object) -> str | None:
    """Return the tag of the alternative that a precision was meant to be; None where that is unknown."""
    if isinstance(value, str):
        return "PrecisionName" if value in get_args(PrecisionName) else None
    return "MixedPrecision" if isinstance(value, dict | MixedPrecision) else None


Precision = Annotated[
    Annotated[PrecisionName, Tag("PrecisionName")] | Annotated[MixedPrecision, Tag("MixedPrecision")],
    Discriminator(
        _kind,
        custom_error_type="alternatives",
        custom_error_message="write float32, float16, bfloat16 or {default: float16, keep_float32: [modules], "
        "saturate: true}",
    ),
]
