"""Settings of a recipe that a target may override: tool versions, export, sizes, tolerances."""

import re
from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Discriminator, Field, Tag, create_model, model_validator

from convkit.host.recipe.checks.names_axes_and_sizes import FaultsError, RecipeFault
from convkit.host.recipe.keys.field_types import (
    PACKAGE_PATTERN,
    PYTHON_PATTERN,
    Number,
    RecipeModel,
    Size,
    SizeOrNone,
    Specifier,
    TensorName,
)
from convkit.protocol.messages import Exporter
from convkit.protocol.metrics.limit_kinds import Parameter
from convkit.protocol.metrics.metric_registry import PARAMETERS


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
                    RecipeFault((name,), f"is the same package as {first[normal]!r}; write it once")
                )
            elif normal == "python":
                faults.append(RecipeFault((name,), "write python in lower case"))
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

    exporter: Exporter = Field(
        "torch",
        description=(
            "torch: torch.onnx.export(dynamo=True); torchscript: the older one; optimum:"
            " optimum-onnx; auto: the first of torch, torchscript, optimum whose graph is right;"
            " default: torch, or torchscript where torch fails and its graph is right"
        ),
    )
    opset: Annotated[int, Field(strict=True, ge=11, le=26)] = Field(
        18,
        description=(
            "ONNX opset version; an ONNX file (model.onnx) is converted only if this is given"
        ),
    )
    input_order: Literal["signature", "recipe"] = Field(
        "signature",
        description=(
            "signature: the inputs must be in the order of the model's forward; recipe: the "
            "recipe's order is intentional"
        ),
    )


class Axis(RecipeModel):
    """A symbolic axis: the sizes the converted model must support."""

    min: SizeOrNone = Field(
        description="smallest size, in elements; 0 if it may be empty, as a cache may", examples=[1]
    )
    typical: Size = Field(description="the usual size, in elements", examples=[4])
    max: Size = Field(description="largest size, in elements", examples=[16])

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.min <= self.typical <= self.max:
            raise ValueError(
                f"found {self.min}, {self.typical}, {self.max}; write min <= typical <= max"
            )
        return self


class Match(RecipeModel):
    """Which rows of two models belong together along a data axis, and which of them may differ."""

    boxes: TensorName | None = Field(
        None,
        description="an output of boxes: rows belong together whose boxes overlap most",
        examples=["boxes"],
    )
    box_format: Literal["corners", "center"] = Field(
        "corners",
        description=(
            "corners: x1, y1, x2, y2 (or y1, x1, y2, x2); center: center x, center y, width, height"
        ),
    )
    equal: TensorName | None = Field(
        None,
        description="an output whose rows are equal if they belong together",
        examples=["selected_indices"],
    )
    scores: TensorName | None = Field(
        None, description="an output with one score per row", examples=["scores"]
    )
    threshold: Number | None = Field(
        None, description="the model keeps rows whose score exceeds this", examples=[0.5]
    )

    @model_validator(mode="after")
    def _clear(self) -> Self:
        if self.boxes is not None and self.equal is not None:
            raise ValueError("has both boxes and equal; keep one of them")
        if self.threshold is not None and self.scores is None:
            raise ValueError("has a threshold without scores; name the output with the scores")
        return self


class DataAxis(RecipeModel):
    """An axis of outputs whose size depends on the inputs' values: the number of detections."""

    model_config = ConfigDict(populate_by_name=True)

    origin: Literal["data"] = Field(
        alias="from", description="data: the size depends on the inputs' values"
    )
    max: Size = Field(
        description="most rows that the model returns: its own limit, such as top-k's k",
        examples=[300],
    )
    match: Match = Field(
        default_factory=Match,
        description="which rows of two models belong together; default: the nearest",
    )


def _axis_kind(value: object) -> str:
    """Return the union tag that an axis seems to mean."""
    if isinstance(value, dict):
        return "DataAxis" if {"from", "origin", "match"} & set(value) else "Axis"
    return type(value).__name__ if isinstance(value, Axis | DataAxis) else "Axis"


AnyAxis = Annotated[
    Annotated[Axis, Tag("Axis")] | Annotated[DataAxis, Tag("DataAxis")], Discriminator(_axis_kind)
]


def _limit(parameter: Parameter) -> tuple[object, object]:
    """Return a tolerance key as a pydantic field: its type, and its default with a description."""
    least = {"ge" if parameter.least_is_allowed else "gt": parameter.least}
    number = Annotated[float, Field(strict=True, le=parameter.most, allow_inf_nan=False, **least)]
    return (number | None, Field(None, description=parameter.description))


# The keys come from the metrics registry: mypy cannot know a class that is built from data.
_Limits = create_model(  # type: ignore[call-overload]
    "_Limits", __base__=RecipeModel, **{name: _limit(row) for name, row in PARAMETERS.items()}
)


class Tolerance(_Limits):
    """Limits on the difference from the original, each optional; all given limits must hold.

    atol and rtol are numpy's allclose: |candidate - reference| <= atol + rtol * |reference| for
    every element.
    """

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    @model_validator(mode="after")
    def _something(self) -> Self:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise ValueError(
                "has no limit, so it cannot fail; write at least one, such as max_abs: 1.0e-4"
            )
        return self


# The types that targets compute in, coarser and coarser.
ComputedType = Literal["float32", "float16", "bfloat16", "int8", "int4"]


class PrecisionLimits(RecipeModel):
    """Limits that hold for targets of one precision only."""

    tolerance: Tolerance | None = Field(None, description="in place of verify.tolerance")
    outputs: dict[str, Tolerance] = Field(
        default_factory=dict, description="tolerances by output, in place of `tolerance`"
    )
