"""Weight compression of Core ML targets."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from convkit.recipe.consistency import Fault, FaultsError
from convkit.recipe.fields import MODULES_PATTERN, RecipeModel

Keep = tuple[Annotated[str, Field(pattern=MODULES_PATTERN)], ...]


class Compression(RecipeModel):
    """How to compress the weights. The arithmetic keeps the target's precision."""

    weights: Literal["int8", "int4", "palette"] | None = Field(
        None,
        description=(
            "int8: linear, a scale per channel; int4: linear, a scale per block; palette: a lookup"
            " table of values, found by k-means"
        ),
    )
    bits: Literal[1, 2, 3, 4, 6, 8] | None = Field(
        None, description="with palette: bits per weight; default 4"
    )
    block_size: Literal[16, 32, 64, 128] | None = Field(
        None, description="with int4: weights that share a scale; default 32"
    )
    prune: Annotated[float, Field(strict=True, gt=0, lt=1)] | None = Field(
        None,
        description="the fraction of weights to set to zero, smallest magnitude first",
        examples=[0.5],
    )
    keep: Keep = Field(
        (),
        description="modules whose weights stay uncompressed, as patterns over module paths",
        examples=[["lm_head"]],
    )

    @model_validator(mode="after")
    def _keys_fit(self) -> Self:
        faults = []
        if self.weights is None and self.prune is None:
            faults.append(Fault((), "compresses nothing; write weights: int8, or prune: 0.5"))
        if self.bits is not None and self.weights != "palette":
            faults.append(Fault(("bits",), "requires weights: palette; add that, or remove this"))
        if self.block_size is not None and self.weights != "int4":
            faults.append(
                Fault(("block_size",), "requires weights: int4; add that, or remove this")
            )
        if faults:
            raise FaultsError(faults)
        return self

    def least_target(self) -> str:
        """Return the oldest iOS release that supports this compression."""
        return "iOS18" if self.weights == "int4" or (self.weights and self.prune) else "iOS16"
