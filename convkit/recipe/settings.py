"""Settings of a recipe that a target may override: tool versions, export, sizes, tolerances."""

import re
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, model_validator

from convkit.recipe.consistency import Fault, FaultsError
from convkit.recipe.fields import (
    PACKAGE_PATTERN,
    PYTHON_PATTERN,
    NonNegative,
    RecipeModel,
    Size,
    Specifier,
)


class Tools(RecipeModel):
    """Tool versions: `python`, and any package by its index name, as PEP 440 specifiers."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[Annotated[str, Field(pattern=PACKAGE_PATTERN)], Specifier]

    python: Annotated[str, Field(pattern=PYTHON_PATTERN)] | None = Field(
        None, description="the Python version of the stages' environments", examples=["3.11"]
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        first: dict[str, str] = {}
        faults = []
        for name in self.__pydantic_extra__ or {}:
            normal = _normalized(name)
            if normal in first:
                faults.append(
                    Fault((name,), f"is the same package as {first[normal]!r}; write it once")
                )
            elif normal == "python":
                faults.append(Fault((name,), "write python in lower case"))
            first.setdefault(normal, name)
        if faults:
            raise FaultsError(faults)
        return self

    def packages(self) -> dict[str, str]:
        """Return specifiers by normalized package name (PEP 503)."""
        return {_normalized(name): spec for name, spec in (self.__pydantic_extra__ or {}).items()}


def _normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class Export(RecipeModel):
    """How the model becomes ONNX."""

    exporter: Literal["torch", "optimum", "torchscript"] = Field(
        "torch",
        description=(
            "torch: torch.onnx.export(dynamo=True); torchscript: the older one; optimum:"
            " optimum-onnx"
        ),
    )
    opset: Annotated[int, Field(strict=True, ge=11, le=26)] = Field(
        18, description="ONNX opset version"
    )
    input_order: Literal["signature", "recipe"] = Field(
        "signature",
        description=(
            "signature: the inputs must be in the order of the model's forward; recipe: the"
            " recipe's order is intended"
        ),
    )


class Axis(RecipeModel):
    """A symbolic axis: the sizes the converted model must support."""

    min: Size = Field(description="smallest size, in elements", examples=[1])
    typical: Size = Field(description="the usual size, in elements", examples=[4])
    max: Size = Field(description="largest size, in elements", examples=[16])

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.min <= self.typical <= self.max:
            raise ValueError(
                f"found {self.min}, {self.typical}, {self.max}; write min <= typical <= max"
            )
        return self


class Tolerance(RecipeModel):
    """Limits on the difference from the original, each optional; all given limits must hold.

    atol and rtol are numpy's allclose: |candidate - reference| <= atol + rtol * |reference| for
    every element.
    """

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    max_abs: NonNegative | None = Field(None, description="largest absolute error")
    max_rel: NonNegative | None = Field(
        None, description="largest error relative to the reference element"
    )
    mean_abs: NonNegative | None = Field(None, description="mean of the absolute errors")
    rms: NonNegative | None = Field(None, description="root of the mean squared error")
    cosine: Annotated[float, Field(strict=True, gt=-1, le=1)] | None = Field(
        None, description="smallest cosine similarity"
    )
    atol: NonNegative | None = Field(
        None, description="allclose: absolute part; 0 if only rtol is given"
    )
    rtol: NonNegative | None = Field(
        None,
        description="allclose: part relative to the reference element; 0 if only atol is given",
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise ValueError(
                "has no limit, so it cannot fail; write at least one, such as max_abs: 1.0e-4"
            )
        return self
