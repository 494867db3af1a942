"""A recipe as typed, frozen data. Unknown keys are errors; every key is documented here, and so in the JSON Schema."""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Literal, Self

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from convkit.codec import Json
from convkit.tensors import DimensionError, DType, dimension_axes

Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
AxisName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=100)]
TensorName = Annotated[str, Field(min_length=1, max_length=200)]
NonNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class RecipeModel(BaseModel):
    """Frozen, and refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class HubModel(RecipeModel):
    """A repository on a model hub, pinned to a commit."""

    id: Annotated[str, Field(pattern=r"^[\w.-]+(/[\w.-]+)?$", description="owner/name")]
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$", description="the full commit: a branch or tag can move")]


class PackageModel(RecipeModel):
    """A folder in transformers' layout inside a Python package."""

    name: Name
    version: Annotated[str, Field(min_length=1, description="the exact version")]
    path: Annotated[str, Field(min_length=1, description="the folder inside the package")]


class ConfigModel(RecipeModel):
    """A transformers architecture by its configuration, with seeded random weights."""

    architecture: Annotated[str, Field(min_length=1, description="transformers' model_type, such as bert")]
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    overrides: dict[str, Any] = Field(default_factory=dict, description="keys of the configuration")


class FactoryModel(RecipeModel):
    """A Python callable that returns a torch module."""

    call: Annotated[str, Field(pattern=r"^.+\.py:[A-Za-z_]\w*$", description="path/to/file.py:callable")]
    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    arguments: dict[str, Any] = Field(default_factory=dict, description="keyword arguments of the callable")


class Model(RecipeModel):
    """The model: one of hub, path, package, config, factory and onnx, and how to load it."""

    hub: HubModel | None = None
    path: Annotated[str, Field(min_length=1)] | None = Field(None, description="a folder in transformers' layout")
    package: PackageModel | None = None
    config: ConfigModel | None = None
    factory: FactoryModel | None = None
    onnx: Annotated[str, Field(min_length=1)] | None = Field(None, description="an ONNX file made elsewhere")
    task: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="which head to load, such as feature-extraction or text-classification"
    )
    dtype: Literal["float32", "float16", "bfloat16", "stored"] = Field(
        "float32", description="element type to load the weights in; stored keeps the checkpoint's own"
    )
    attn_implementation: Literal["eager", "sdpa"] | None = Field(None, description="which of transformers' attentions")
    allow_pickle: bool = Field(default=False, description="load pickled weights, which can run any code")
    allow_remote_code: bool = Field(default=False, description="run Python code that comes with the model")
    omit: tuple[TensorName, ...] = Field(
        (), description="inputs of the model that are left at their defaults on purpose"
    )

    @field_validator("factory", mode="before")
    @classmethod
    def _short_factory(cls, value: object) -> object:
        return {"call": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        given = [kind for kind in SOURCE_KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            found = "none" if not given else " and ".join(given)
            raise ValueError(f"a model comes from exactly one of {', '.join(SOURCE_KINDS)}; found {found}")
        return self


SOURCE_KINDS = ("hub", "path", "package", "config", "factory", "onnx")


def _check_specifier(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, str):
        raise ValueError('a version specifier is text in quotes, such as "==2.13.*"')  # noqa: TRY004 - pydantic's way
    try:
        SpecifierSet(value)
    except InvalidSpecifier as error:
        hint = f'; perhaps you meant "=={value}"' if re.fullmatch(r"[0-9][0-9.*]*", value) else ""
        raise ValueError(f"{value!r} is not a PEP 440 version specifier{hint}") from error
    return value


class Tools(RecipeModel):
    """Versions of tools: `python`, and any package by its name on the index, as PEP 440 specifiers."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, str]

    python: Annotated[str, Field(pattern=r"^3\.\d+(\.\d+)?$")] | None = Field(None, description='such as "3.11"')

    @model_validator(mode="before")
    @classmethod
    def _specifiers(cls, values: object) -> object:
        if not isinstance(values, dict):
            return values
        for name, value in values.items():
            if name == "python":
                continue
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9,._-]+\])?", str(name)):
                raise ValueError(f"{name!r} is not a package name")
            try:
                _check_specifier(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
        return values

    def packages(self) -> dict[str, str]:
        """Return specifiers by normalised package name (PEP 503)."""
        return {re.sub(r"[-_.]+", "-", name).lower(): spec for name, spec in (self.__pydantic_extra__ or {}).items()}


class Export(RecipeModel):
    """How the model becomes ONNX."""

    exporter: Literal["torch", "optimum", "torchscript"] = "torch"
    opset: Annotated[int, Field(ge=11, le=26)] = 18
    input_order: Literal["signature", "recipe"] = Field(
        "signature",
        description="signature: the inputs must stand in the order of the model's forward; recipe: any order is meant",
    )


class Axis(RecipeModel):
    """A symbolic axis: the sizes the converted model must serve."""

    min: Annotated[int, Field(ge=1, le=2**31)]
    typical: Annotated[int, Field(ge=1, le=2**31)]
    max: Annotated[int, Field(ge=1, le=2**31)]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.min <= self.typical <= self.max:
            raise ValueError(f"min <= typical <= max must hold; found {self.min}, {self.typical}, {self.max}")
        return self


class Integers(RecipeModel):
    """Whole numbers, low included, high excluded."""

    integers: tuple[int, int]

    @field_validator("integers")
    @classmethod
    def _range(cls, value: tuple[int, int]) -> tuple[int, int]:
        if value[0] >= value[1]:
            raise ValueError(f"[low, high]: low is included, high is not, so low < high; found {list(value)}")
        return value


class Normal(RecipeModel):
    """Normally distributed values: mean, standard deviation."""

    normal: tuple[float, NonNegative]


class Uniform(RecipeModel):
    """Evenly distributed values: low, high."""

    uniform: tuple[float, float]


class Constant(RecipeModel):
    """One value everywhere."""

    constant: float


class File(RecipeModel):
    """Values from an .npy file, cut or repeated to the shape."""

    file: Annotated[str, Field(pattern=r".+\.npy$")]


SampleName = Literal["token_ids", "padding_mask", "positions"]
Sample = SampleName | Integers | Normal | Uniform | Constant | File


def _check_shape(shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
    for dimension in shape:
        if isinstance(dimension, int):
            if dimension < 0:
                raise ValueError(f"a size cannot be negative; found {dimension}. Name an axis for a size that varies")
            continue
        try:
            dimension_axes(dimension)
        except DimensionError as error:
            raise ValueError(str(error)) from error
    return shape


class Tensor(RecipeModel):
    """An input or output, in the contract's order."""

    name: TensorName
    dtype: DType
    shape: tuple[Annotated[int, Field(strict=True)] | str, ...] = Field(
        description="sizes, axes by name, or arithmetic over axes such as past + sequence"
    )
    origin: TensorName | None = Field(
        None, alias="from", description="the name on the model's side, where that differs"
    )

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True)

    @field_validator("shape")
    @classmethod
    def _dimensions(cls, shape: tuple[int | str, ...]) -> tuple[int | str, ...]:
        return _check_shape(shape)


class Input(Tensor):
    """An input, and how values for it are drawn."""

    sample: Sample | None = Field(None, description="default: normal for floats; whole numbers and bools must say")

    @model_validator(mode="after")
    def _sample_given(self) -> Self:
        if self.sample is None and not self.dtype.startswith(("float", "bfloat")):
            raise ValueError(
                f"input {self.name!r} is {self.dtype}: say how to draw it, "
                "such as sample: token_ids, sample: padding_mask or sample: {integers: [0, 2]}"
            )
        return self


class Output(Tensor):
    """An output."""


class Tolerance(RecipeModel):
    """Limits on the difference from the original, each optional; all that are given must hold.

    atol and rtol are numpy's allclose: |candidate - reference| <= atol + rtol * |reference| for every element.
    """

    max_abs: NonNegative | None = Field(None, description="largest absolute error")
    max_rel: NonNegative | None = Field(None, description="largest error relative to the reference element")
    mean_abs: NonNegative | None = None
    rms: NonNegative | None = Field(None, description="root of the mean squared error")
    cosine: Annotated[float, Field(ge=-1, le=1)] | None = Field(None, description="smallest cosine similarity")
    atol: NonNegative | None = None
    rtol: NonNegative | None = None

    @model_validator(mode="after")
    def _something(self) -> Self:
        if not self.model_fields_set:
            raise ValueError("a tolerance without a limit cannot fail; give at least one, such as max_abs: 1.0e-4")
        return self

    def over(self, base: "Tolerance | None") -> "Tolerance":
        """Return this tolerance with `base`'s limits where it has none of its own."""
        if base is None:
            return self
        return Tolerance(**{**base.model_dump(exclude_unset=True), **self.model_dump(exclude_unset=True)})


CaseName = Literal[
    "smallest", "typical", "padded", "ragged", "largest", "masked-row", "off-typical", "texts", "extreme"
]
ALWAYS_RUN: tuple[str, ...] = ("smallest", "padded", "masked-row")


class Verify(RecipeModel):
    """How built models are compared with the original."""

    seed: Annotated[int, Field(ge=0, lt=2**63)] = 0
    texts: Annotated[str, Field(min_length=1)] | None = Field(
        None, description="a file with one text a line, for the model's own tokenizer"
    )
    tolerance: Tolerance = Field(default_factory=lambda: Tolerance(max_abs=1e-4, cosine=0.99999))
    outputs: dict[str, Tolerance] = Field(default_factory=dict, description="tolerances by output, over `tolerance`")
    budget: Seconds | None = Field(
        None, description="seconds of inference a verification may take; what it leaves out is listed in the result"
    )
    skip: tuple[CaseName, ...] = Field((), description="cases that mean nothing to this model; listed in the result")
    timeout: Seconds = Field(3600, description="seconds after which any stage is stopped")


class OnnxRuntimeTarget(RecipeModel):
    """A target served by onnxruntime."""

    runtime: Literal["onnxruntime"]
    device: Literal["cpu", "cuda"] = "cpu"
    precision: Literal["float32"] = "float32"
    optimization: Literal["none", "basic", "extended", "all"] = Field(
        "all", description="onnxruntime's graph optimisation level"
    )
    artifact: Literal["exported", "optimized"] = Field(
        "exported", description="optimized: the graph as onnxruntime optimised it, for this kind of machine, is built"
    )
    versions: tuple[str, ...] = Field(
        (), description="onnxruntime releases that must all serve the same artifact, as specifiers"
    )
    tolerance: Tolerance | None = Field(None, description="over verify.tolerance")
    outputs: dict[str, Tolerance] = Field(default_factory=dict, description="over verify.outputs")
    tools: Tools = Field(default_factory=Tools, description="over the recipe's tools")
    export: Export | None = Field(None, description="in place of the recipe's export")

    @field_validator("versions")
    @classmethod
    def _specifiers(cls, versions: tuple[str, ...]) -> tuple[str, ...]:
        for version in versions:
            _check_specifier(version)
        if len(set(versions)) != len(versions):
            raise ValueError("a version stands here twice")
        return versions


# One runtime more: one more target model, here. A test holds the kinds equal to the worker's registry.
Target = OnnxRuntimeTarget


class Track(RecipeModel):
    """Where MLflow keeps the runs."""

    experiment: Annotated[str, Field(min_length=1, max_length=250)] | None = Field(
        None, description="default: convkit/<recipe name>"
    )


class Recipe(RecipeModel):
    """A convkit recipe."""

    schema_version: Literal[1] = Field(alias="schema", description="the version of this format")
    name: Name
    description: str = ""
    model: Model
    tools: Tools = Field(default_factory=Tools)
    export: Export = Field(default_factory=Export)
    axes: dict[AxisName, Axis] = Field(default_factory=dict)
    inputs: Annotated[tuple[Input, ...], Field(min_length=1)]
    outputs: Annotated[tuple[Output, ...], Field(min_length=1)]
    verify: Verify = Field(default_factory=Verify)
    targets: Annotated[dict[Name, Target], Field(min_length=1)]
    track: Track = Field(default_factory=Track)

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, populate_by_name=True, title="convkit recipe"
    )

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [tensor.name for tensor in (*self.inputs, *self.outputs)]
        if doubled := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"each input and output needs its own name; {', '.join(map(repr, doubled))} stands twice")
        for tensor in (*self.inputs, *self.outputs):
            for dimension in tensor.shape:
                for axis in dimension_axes(dimension):
                    if axis not in self.axes:
                        known = ", ".join(self.axes) or "none"
                        raise ValueError(
                            f"{tensor.name!r} uses the axis {axis!r}, which axes: does not declare ({known})"
                        )
        self._check_outputs(self.verify.outputs, "verify.outputs")
        for name, target in self.targets.items():
            self._check_outputs(target.outputs, f"targets.{name}.outputs")
        return self

    def _check_outputs(self, names: Iterable[str], place: str) -> None:
        known = [output.name for output in self.outputs]
        for name in names:
            if name not in known:
                raise ValueError(f"{place} names {name!r}, which is not an output; outputs: {', '.join(known)}")

    def dump(self) -> dict[str, Json]:
        """Return the recipe as JSON values, under the keys a user writes, without defaults."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True)
