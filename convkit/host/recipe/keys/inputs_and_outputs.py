"""Inputs and outputs of a model, and how to sample values for its inputs."""

from typing import Annotated, Literal, Self, get_args

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from convkit.host.recipe.checks.names_axes_and_sizes import FaultsError, RecipeFault, sample_fault
from convkit.host.recipe.keys.field_types import (
    SAMPLE_FILE_PATTERN,
    NonNegative,
    Number,
    RecipeModel,
    Switch,
    TensorName,
    Whole,
)
from convkit.host.recipe.keys.postprocessing import Postprocess
from convkit.host.recipe.keys.preprocessing import Preprocess, input_faults
from convkit.protocol.contract import DimensionError, DType, dimension_axes


def _check_dimension(dimension: object) -> int | str:
    if isinstance(dimension, bool) or not isinstance(dimension, int | str):
        message = "write a size, an axis by name, or arithmetic over axes such as past + sequence"
        raise ValueError(message)  # noqa: TRY004 - pydantic's validators raise ValueError
    if isinstance(dimension, str):
        try:
            dimension_axes(dimension)
        except DimensionError as error:
            raise ValueError(str(error)) from error
    elif not 0 <= dimension <= 2**31:
        raise ValueError(
            f"found {dimension}; write a size from 0 to 2147483648, or name an axis for one that"
            " varies"
        )
    return dimension


class Integers(RecipeModel):
    """Integers; low is included, high excluded."""

    integers: tuple[Whole, Whole] = Field(
        description="[low, high]: low included, high not", examples=[[0, 2]]
    )
    holds: tuple[tuple[Whole, Annotated[int | str, BeforeValidator(_check_dimension)]], ...] = (
        Field(
            (),
            description=(
                "numbers with a meaning, such as the token in whose place an image goes, each with"
                " how many elements have it: a size, an axis, arithmetic over axes, or `some`"
            ),
            examples=[[[7, "features"]], [[2, "some"]]],
        )
    )

    @model_validator(mode="after")
    def _holds_legal(self) -> Self:
        low, high = self.integers
        for number, _ in self.holds:
            if not low <= number < high:
                raise ValueError(f"holds: {number} is not in integers: [{low}, {high}]")
        if self.holds and len({number for number, _ in self.holds}) >= high - low:
            raise ValueError("holds: leave at least one of the integers without a meaning")
        return self

    @field_validator("integers")
    @classmethod
    def _range(cls, value: tuple[int, int]) -> tuple[int, int]:
        if value[0] >= value[1]:
            raise ValueError(
                f"found {list(value)}; write [low, high] with low < high (low is included, high is"
                " not)"
            )
        return value


class Normal(RecipeModel):
    """Normally distributed values: mean, standard deviation."""

    normal: tuple[Number, NonNegative] = Field(
        description="[mean, standard deviation]", examples=[[0, 1]]
    )


class Uniform(RecipeModel):
    """Evenly distributed values: low, high."""

    uniform: tuple[Number, Number] = Field(description="[low, high]", examples=[[0, 1]])

    @field_validator("uniform")
    @classmethod
    def _range(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not value[0] < value[1]:
            raise ValueError(f"found {list(value)}; write [low, high] with low < high")
        return value


class Columns(RecipeModel):
    """Evenly distributed values, of each column (along the last axis) within a range of its own."""

    columns: tuple[tuple[Number, Number], ...] = Field(
        min_length=1,
        description="[low, high] of each column",
        examples=[[[0, 1], [-40, 60], [0, 3000000]]],
    )

    @field_validator("columns")
    @classmethod
    def _ranges(cls, value: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
        for low, high in value:
            if not low <= high:
                raise ValueError(f"found [{low:g}, {high:g}]; write [low, high] with low <= high")
        return value


class _Signal(RecipeModel):
    @field_validator("image", "audio", check_fields=False)
    @classmethod
    def _range(cls, value: tuple[float, float]) -> tuple[float, float]:
        if not value[0] < value[1]:
            raise ValueError(f"found {list(value)}; write [low, high] with low < high")
        return value


class Image(_Signal):
    """Pictures: smooth fields, edges and strokes."""

    image: tuple[Number, Number] = Field(
        description="[low, high]: the values of black and white", examples=[[0, 1], [0, 255]]
    )


class Audio(_Signal):
    """Sound along the last axis: harmonics that swell and fade, pauses, a little noise."""

    audio: tuple[Number, Number] = Field(
        description="[low, high]: the smallest and largest amplitude", examples=[[-1, 1]]
    )


class OneOf(RecipeModel):
    """One of a few values, the same for every element; the cases take turns."""

    one_of: Annotated[tuple[Number, ...], Field(min_length=1)] = Field(
        description="the values that the input may have", examples=[[8000, 16000]]
    )


class Constant(RecipeModel):
    """The same value everywhere."""

    constant: Number = Field(description="the value of every element", examples=[1])


class Strings(RecipeModel):
    """Texts, one per element."""

    strings: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        description="the texts to choose from", examples=[["red", "green"]]
    )


class Lengths(RecipeModel):
    """How many elements of an axis each row uses; the rest is padding."""

    lengths: Annotated[int | str, BeforeValidator(_check_dimension)] = Field(
        description="the axis that the lengths are bounded by, a size, or arithmetic over axes",
        examples=["samples"],
    )
    filled: Switch = Field(
        default=False,
        description=(
            "the first row always uses the whole axis, and none more than the one before it, as"
            " models need it that cut their outputs to the longest row"
        ),
    )


class Offsets(RecipeModel):
    """At which element each row begins, as nn.EmbeddingBag reads them: ascending from 0."""

    offsets: Annotated[int | str, BeforeValidator(_check_dimension)] = Field(
        description="the axis whose elements belong to rows, a size, or arithmetic over axes",
        examples=["entries"],
    )


class File(RecipeModel):
    """Values from a file, cut or repeated to fit the shape, or an image file's bytes."""

    file: Annotated[str, Field(pattern=SAMPLE_FILE_PATTERN)] = Field(
        description=(
            "an .npy file, an .npz file with an array of the input's name, or an image file whose"
            " bytes the model decodes, relative to the recipe's folder"
        ),
        examples=["samples/pixels.npy", "bert.example.npz", "samples/cat.jpg"],
    )


SampleName = Literal[
    "token_ids",
    "padding_mask",
    "key_padding_mask",
    "additive_padding_mask",
    "causal_mask",
    "inverted_causal_mask",
    "additive_causal_mask",
    "positions",
    "encoded_image",
]
_SAMPLE_MODELS: tuple[type[RecipeModel], ...] = (
    Integers,
    Normal,
    Uniform,
    Columns,
    Image,
    Audio,
    OneOf,
    Constant,
    Strings,
    Lengths,
    Offsets,
    File,
)


def _sample_kind(value: object) -> str | None:
    """Return the union tag that a sample seems to mean; None if unclear."""
    if isinstance(value, str):
        return "SampleName" if value in get_args(SampleName) else None
    if isinstance(value, dict):
        return next(
            (kind.__name__ for kind in _SAMPLE_MODELS if set(kind.model_fields) & set(value)), None
        )
    return type(value).__name__ if isinstance(value, _SAMPLE_MODELS) else None


Sample = Annotated[
    Annotated[SampleName, Tag("SampleName")]
    | Annotated[Integers, Tag("Integers")]
    | Annotated[Normal, Tag("Normal")]
    | Annotated[Uniform, Tag("Uniform")]
    | Annotated[Columns, Tag("Columns")]
    | Annotated[Image, Tag("Image")]
    | Annotated[Audio, Tag("Audio")]
    | Annotated[OneOf, Tag("OneOf")]
    | Annotated[Constant, Tag("Constant")]
    | Annotated[Strings, Tag("Strings")]
    | Annotated[Lengths, Tag("Lengths")]
    | Annotated[Offsets, Tag("Offsets")]
    | Annotated[File, Tag("File")],
    Discriminator(
        _sample_kind,
        custom_error_type="alternatives",
        custom_error_message=(
            f"write {', '.join(get_args(SampleName))}, {{integers: [low, high]}},"
            " {normal: [mean, deviation]}, {uniform: [low, high]}, {image: [low, high]},"
            " {audio: [low, high]}, {one_of: [values]}, {constant: value}, {strings:"
            " [texts]}, {lengths: axis}, {offsets: axis} or {file: path.npy}"
        ),
    ),
]


def _kind_and_numbers(sample: SampleName | RecipeModel) -> tuple[str, tuple[float, ...]]:
    """Return a sample's kind, which is its first field's name, and its numbers."""
    if isinstance(sample, str):
        return sample, ()
    kind, *_ = type(sample).model_fields
    value = getattr(sample, kind)
    if isinstance(value, str) or kind in ("strings", "lengths", "offsets"):
        return kind, ()
    return kind, value if isinstance(value, tuple) else (value,)


class Tensor(RecipeModel):
    """An input or output, in the contract's order."""

    model_config = ConfigDict(populate_by_name=True)

    name: TensorName = Field(description="the name in the converted model", examples=["input_ids"])
    dtype: DType = Field(description="element type", examples=["int64"])
    shape: tuple[Annotated[int | str, BeforeValidator(_check_dimension)], ...] = Field(
        description="sizes, axes by name, or arithmetic over axes such as past + sequence",
        examples=[["batch", "sequence"]],
    )
    origin: TensorName | None = Field(
        None, alias="from", description="the model's own name, if different", examples=["tokens"]
    )


class Input(Tensor):
    """An input, and how to sample values for it."""

    sample: Sample | None = Field(
        None,
        description=(
            "how to sample values; default: normal for floats; required for integers, bools and"
            " strings"
        ),
        examples=["token_ids", {"integers": [0, 2]}],
    )
    preprocess: Preprocess | None = Field(
        None,
        description="how an image, sound or text becomes this input; see docs/preprocessing.md",
        examples=[{"files": ["samples/cat.png"], "image": {"scale": "1/255"}}],
    )

    @model_validator(mode="after")
    def _sample_fits(self) -> Self:
        if self.sample is None:
            if not self.dtype.startswith(("float", "bfloat")):
                options = (
                    "sample: {strings: [texts]}"
                    if self.dtype == "string"
                    else "sample: token_ids, sample: padding_mask or sample: {integers: [0, 2]}"
                )
                raise ValueError(
                    f"input {self.name!r} is {self.dtype}, so it needs a sample; write {options}"
                )
            return self
        kind, numbers = _kind_and_numbers(self.sample)
        message = sample_fault(self.dtype, kind, numbers)
        if message is None and isinstance(self.sample, Columns):
            message = _columns_fault(self.sample, self.shape)
        if message:
            raise FaultsError([RecipeFault(("sample",), message)])
        return self

    @model_validator(mode="after")
    def _preprocess_fits(self) -> Self:
        if self.preprocess is not None:
            faults = [*input_faults(self.preprocess, self.dtype, self.shape)]
            if faults:
                raise FaultsError(faults)
        return self


def _columns_fault(sample: Columns, shape: tuple[int | str, ...]) -> str | None:
    """Return why a sample's columns are not those of a shape; None if they are."""
    found, last = len(sample.columns), shape[-1] if shape else None
    if found == last:
        return None
    if not isinstance(last, int):
        return "columns are along the last axis, which needs a fixed size"
    return f"found ranges of {found} columns, and the last axis has {last}; write one of each"


class Output(Tensor):
    """An output."""

    mask: TensorName | None = Field(
        None,
        description=(
            "an input that marks padding; output values there are meaningless and not compared"
        ),
        examples=["attention_mask"],
    )
    postprocess: Postprocess | None = Field(
        None,
        description="how an app reads this output; see docs/postprocessing.md",
        examples=[{"labels": {"names": ["cat", "dog"]}}],
    )
