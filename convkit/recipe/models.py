"""A recipe as typed, frozen data. Unknown keys are errors; every key is documented here, and so in the JSON Schema.

`convkit.recipe.validation` turns pydantic's errors into sentences, with the help of the descriptions and examples.
"""

import re
from typing import Annotated, Literal, Self

from packaging.specifiers import SpecifierSet
from pydantic import BeforeValidator, ConfigDict, Field, field_validator, model_validator

from convkit.codec import Json
from convkit.recipe.consistency import Fault, FaultsError, consistency_faults
from convkit.recipe.fields import (
    PACKAGE_PATTERN,
    PYTHON_PATTERN,
    AxisName,
    Name,
    NonNegative,
    RecipeModel,
    Seconds,
    Seed,
    Size,
    Specifier,
    Text,
)
from convkit.recipe.precision import MixedPrecision, Precision, QuantizedPrecision
from convkit.recipe.signature import (
    Constant,
    File,
    Input,
    Integers,
    Normal,
    Output,
    Sample,
    SampleName,
    Tensor,
    Uniform,
)
from convkit.recipe.sources import SOURCE_KINDS, ConfigModel, FactoryModel, HubModel, Model, PackageModel

__all__ = [
    "ALWAYS_RUN",
    "SOURCE_KINDS",
    "Axis",
    "CaseName",
    "ConfigModel",
    "Constant",
    "Export",
    "FactoryModel",
    "File",
    "HubModel",
    "Input",
    "Integers",
    "MixedPrecision",
    "Model",
    "Normal",
    "OnnxRuntimeTarget",
    "Output",
    "PackageModel",
    "Precision",
    "QuantizedPrecision",
    "Recipe",
    "RecipeModel",
    "Sample",
    "SampleName",
    "Target",
    "Tensor",
    "Tolerance",
    "Tools",
    "Track",
    "Uniform",
    "Verify",
]


class Tools(RecipeModel):
    """Versions of tools: `python`, and any package by its name on the index, as PEP 440 specifiers."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[Annotated[str, Field(pattern=PACKAGE_PATTERN)], Specifier]

    python: Annotated[str, Field(pattern=PYTHON_PATTERN)] | None = Field(
        None, description="the Python release of the stages' environments", examples=["3.11"]
    )

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        first: dict[str, str] = {}
        faults = []
        for name in self.__pydantic_extra__ or {}:
            normal = _normalised(name)
            if normal in first:
                faults.append(Fault((name,), f"is the same package as {first[normal]!r}; write it once"))
            elif normal == "python":
                faults.append(Fault((name,), "write python in lower case"))
            first.setdefault(normal, name)
        if faults:
            raise FaultsError(faults)
        return self

    def packages(self) -> dict[str, str]:
        """Return specifiers by normalised package name (PEP 503)."""
        return {_normalised(name): spec for name, spec in (self.__pydantic_extra__ or {}).items()}


def _normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


class Export(RecipeModel):
    """How the model becomes ONNX."""

    exporter: Literal["torch", "optimum", "torchscript"] = Field(
        "torch", description="torch: torch.onnx.export(dynamo=True); torchscript: the older one; optimum: optimum-onnx"
    )
    opset: Annotated[int, Field(strict=True, ge=11, le=26)] = Field(18, description="ONNX operator set")
    input_order: Literal["signature", "recipe"] = Field(
        "signature",
        description="signature: the inputs must stand in the order of the model's forward; recipe: any order is meant",
    )


class Axis(RecipeModel):
    """A symbolic axis: the sizes the converted model must serve."""

    min: Size = Field(description="smallest size, in elements", examples=[1])
    typical: Size = Field(description="the usual size, in elements", examples=[4])
    max: Size = Field(description="largest size, in elements", examples=[16])

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.min <= self.typical <= self.max:
            raise ValueError(f"found {self.min}, {self.typical}, {self.max}; write min <= typical <= max")
        return self


class Tolerance(RecipeModel):
    """Limits on the difference from the original, each optional; all that are given must hold.

    atol and rtol are numpy's allclose: |candidate - reference| <= atol + rtol * |reference| for every element.
    """

    model_config = ConfigDict(json_schema_extra={"minProperties": 1})

    max_abs: NonNegative | None = Field(None, description="largest absolute error")
    max_rel: NonNegative | None = Field(None, description="largest error relative to the reference element")
    mean_abs: NonNegative | None = Field(None, description="mean of the absolute errors")
    rms: NonNegative | None = Field(None, description="root of the mean squared error")
    cosine: Annotated[float, Field(strict=True, gt=-1, le=1)] | None = Field(
        None, description="smallest cosine similarity"
    )
    atol: NonNegative | None = Field(None, description="allclose: absolute part; 0 where only rtol is given")
    rtol: NonNegative | None = Field(
        None, description="allclose: part relative to the reference element; 0 where only atol is given"
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise ValueError("has no limit, so it cannot fail; write at least one, such as max_abs: 1.0e-4")
        return self


CaseName = Literal[
    "smallest", "typical", "padded", "ragged", "largest", "masked-row", "off-typical", "texts", "extreme"
]
ALWAYS_RUN: tuple[str, ...] = ("smallest", "padded", "masked-row")


class Verify(RecipeModel):
    """How built models are compared with the original."""

    seed: Seed = Field(0, description="seed of the drawn inputs")
    texts: Text | None = Field(
        None,
        description="a UTF-8 file with one text a line, for the model's own tokenizer, from the recipe's folder",
        examples=["samples/sentences.txt"],
    )
    tolerance: Tolerance = Field(
        default_factory=lambda: Tolerance(max_abs=1e-4, cosine=0.99999),
        description="default: max_abs 1.0e-4 and cosine 0.99999",
    )
    outputs: dict[str, Tolerance] = Field(
        default_factory=dict, description="tolerances by output, in place of `tolerance`"
    )
    budget: Seconds | None = Field(
        None, description="seconds of inference a verification may take; what it leaves out is listed in the result"
    )
    skip: tuple[CaseName, ...] = Field((), description="cases that mean nothing to this model; listed in the result")
    timeout: Seconds = Field(3600, description="seconds after which any stage is stopped")


class OnnxRuntimeTarget(RecipeModel):
    """A target served by onnxruntime."""

    runtime: Literal["onnxruntime"] = Field(description="what runs the built model")
    device: Literal["cpu", "cuda"] = Field("cpu", description="where it runs")
    precision: Precision = Field(
        "float32",
        description="element type of the weights and the arithmetic",
        examples=[
            "float16",
            {"default": "float16", "keep_float32": ["encoder.layer.*.attention"]},
            {"quantize": "dynamic-int8"},
        ],
    )
    optimization: Literal["none", "basic", "extended", "all"] = Field(
        "all", description="onnxruntime's graph optimisation level"
    )
    artifact: Literal["exported", "optimized"] = Field(
        "exported", description="optimized: the graph as onnxruntime optimised it, for this kind of machine, is built"
    )
    versions: tuple[Specifier, ...] = Field(
        (),
        description="onnxruntime releases that must all serve the same artifact, as specifiers",
        examples=[["==1.21.*", "==1.31.*"]],
    )
    tolerance: Tolerance | None = Field(None, description="in place of verify.tolerance")
    outputs: dict[str, Tolerance] = Field(
        default_factory=dict, description="tolerances by output, in place of all others"
    )
    tools: Tools = Field(default_factory=Tools, description="over the recipe's tools")
    export: Export | None = Field(None, description="in place of the recipe's export")

    @field_validator("versions")
    @classmethod
    def _each_once(cls, versions: tuple[str, ...]) -> tuple[str, ...]:
        plain = [str(SpecifierSet(version)) for version in versions]
        faults = [
            Fault((i,), f"{versions[i]!r} stands in this list already; remove it")
            for i, version in enumerate(plain)
            if version in plain[:i]
        ]
        if faults:
            raise FaultsError(faults)
        return versions

    @model_validator(mode="after")
    def _simulatable(self) -> Self:
        if self.low_precision is not None and self.artifact == "optimized":
            message = (
                f"a target in {self.low_precision.default} is verified by simulating the graph it is built from, and "
                "onnxruntime's optimised graphs have operators of its own; write artifact: exported"
            )
            raise FaultsError([Fault(("artifact",), message)])
        return self

    @property
    def low_precision(self) -> MixedPrecision | None:
        """The low precision with its exceptions; None for float32 and for quantisation."""
        return MixedPrecision.of(self.precision)

    @property
    def quantization(self) -> QuantizedPrecision | None:
        """How the target is quantised; None where it is not."""
        return self.precision if isinstance(self.precision, QuantizedPrecision) else None

    @property
    def searches_precision(self) -> bool:
        """True where convkit is to find what stays in float32."""
        chosen = self.low_precision or self.quantization
        return chosen is not None and chosen.is_auto

    @property
    def plans_precision(self) -> bool:
        """True where the precision is looked at before anything is built: ranges are measured, or it is searched."""
        return self.low_precision is not None or self.searches_precision


# One runtime more: one more target model, here. A test holds the kinds equal to the worker's registry.
Target = OnnxRuntimeTarget


class Track(RecipeModel):
    """Where MLflow keeps the runs."""

    experiment: Annotated[str, Field(min_length=1, max_length=250)] | None = Field(
        None, description="MLflow experiment; default: convkit/<recipe name>", examples=["convkit/bert"]
    )


def _check_schema_version(value: object) -> object:
    if type(value) is not int:  # Literal[1] alone takes True and 1.0, which equal 1
        raise ValueError("write schema: 1")
    return value


class Recipe(RecipeModel):
    """A convkit recipe."""

    model_config = ConfigDict(populate_by_name=True, title="convkit recipe")

    schema_version: Annotated[Literal[1], BeforeValidator(_check_schema_version)] = Field(
        alias="schema", description="the version of this format"
    )
    name: Name = Field(description="the recipe's name, which runs and artifacts are listed under", examples=["bert"])
    description: str = Field("", description="what is converted and for whom, for people")
    model: Model = Field(description="where the model comes from", examples=[{"path": "../my-bert"}])
    original: Model | None = Field(
        None,
        description="with model.onnx: the model that the file was exported from, which it must equal",
        examples=[{"path": "../my-bert"}],
    )
    tools: Tools = Field(default_factory=Tools, description="versions of the tools, as PEP 440 specifiers")
    export: Export = Field(default_factory=Export, description="how the model becomes ONNX")
    axes: dict[AxisName, Axis] = Field(
        default_factory=dict,
        description="symbolic axes of the shapes, by name",
        examples=[{"batch": {"min": 1, "typical": 4, "max": 16}}],
    )
    inputs: Annotated[tuple[Input, ...], Field(min_length=1)] = Field(
        description="the inputs, in order: the order is part of the contract",
        examples=[[{"name": "input_ids", "dtype": "int64", "shape": ["batch", "sequence"], "sample": "token_ids"}]],
    )
    outputs: Annotated[tuple[Output, ...], Field(min_length=1)] = Field(
        description="the outputs, in order: the order is part of the contract",
        examples=[[{"name": "logits", "dtype": "float32", "shape": ["batch", 2]}]],
    )
    verify: Verify = Field(default_factory=Verify, description="how built models are compared with the original")
    targets: Annotated[dict[Name, Target], Field(min_length=1)] = Field(
        description="what to build, by name: a runtime, device, precision and tolerance each",
        examples=[{"ort-cpu": {"runtime": "onnxruntime"}}],
    )
    track: Track = Field(default_factory=Track, description="where MLflow keeps the runs")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if faults := consistency_faults(self.dump()):
            raise FaultsError(faults)
        return self

    @property
    def reference_model(self) -> Model:
        """The model that built models are compared with."""
        return self.original or self.model

    def dump(self) -> dict[str, Json]:
        """Return the recipe as JSON values, under the keys a user writes, without defaults."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)
