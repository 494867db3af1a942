"""What precedes an input: the original's processor, real files, and the constants that the app or
the built model applies.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from convkit.host.recipe.checks.names_axes_and_sizes import KeyPath, RecipeFault, mapping
from convkit.host.recipe.keys.field_types import (
    CALL_PATTERN,
    Number,
    RecipeModel,
    Size,
    Switch,
    Text,
)
from convkit.protocol import preprocessing_constants
from convkit.protocol.json_codec import Json
from convkit.protocol.preprocessing_constants import ChannelOrder, ImageLayout, Interpolation, Side

ONE_255TH = "1/255"
KINDS = ("image", "audio", "text")
Triple = tuple[Number, Number, Number]


class ImagePreprocess(RecipeModel):
    """How a decoded RGB image becomes the input, in the order of these keys."""

    resize: tuple[Size, Size] | Size | None = Field(
        None,
        description="[rows, columns], or the length of the shorter edge",
        examples=[[224, 224], 256],
    )
    interpolation: Interpolation = Field("bilinear", description="how resizing interpolates")
    crop: tuple[Size, Size] | None = Field(
        None, description="[rows, columns] of the center that is kept", examples=[[224, 224]]
    )
    channels: ChannelOrder = Field("rgb", description="the order of the channels")
    scale: Number | Literal["1/255"] = Field(
        1.0, description="factor for values from 0 to 255, applied first", examples=["1/255"]
    )
    mean: Triple | None = Field(
        None, description="subtracted next, for each channel", examples=[[0.485, 0.456, 0.406]]
    )
    std: Triple | None = Field(
        None,
        description="the divisor of each channel, applied last",
        examples=[[0.229, 0.224, 0.225]],
    )
    layout: ImageLayout = Field(
        "channels_first", description="channels_first: [batch, 3, rows, columns]"
    )

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.std is not None and 0 in self.std:
            raise ValueError(f"std divides the values, and {list(self.std)} contains 0")
        if self.scale == 0:
            raise ValueError(f"scale: 0 makes every value 0; write {ONE_255TH} to divide by 255")
        return self

    def constants(self) -> preprocessing_constants.ImageConstants:
        """Return the constants as contracts carry them."""
        scale = 1 / 255 if self.scale == ONE_255TH else float(self.scale)
        given = self.model_dump() | {"scale": scale}
        return preprocessing_constants.ImageConstants(
            **given | {"mean": self.mean or (), "std": self.std or ()}
        )


class AudioPreprocess(RecipeModel):
    """How sound becomes features, under the names of transformers' feature extractors."""

    sampling_rate: Size = Field(description="samples per second", examples=[16000])
    feature_size: Size | None = Field(None, description="mel filters, or features", examples=[80])
    n_fft: Size | None = Field(None, description="samples of a frame", examples=[400])
    hop_length: Size | None = Field(None, description="samples between frames", examples=[160])
    chunk_length: Size | None = Field(
        None, description="seconds that sounds are padded or cut to", examples=[30]
    )
    padding_value: Number | None = Field(None, description="the value of padding")
    do_normalize: Switch | None = Field(None, description="to zero mean and unit variance")

    def constants(self) -> preprocessing_constants.AudioConstants:
        """Return the constants as contracts carry them."""
        return preprocessing_constants.AudioConstants(**self.model_dump())


class TextPreprocess(RecipeModel):
    """How texts become tokens, under the names of transformers' tokenizers."""

    padding_side: Side | None = Field(None, description="where shorter texts are padded")
    truncation_side: Side | None = Field(None, description="where longer texts are cut")
    add_special_tokens: Switch | None = Field(
        None, description="whether tokens such as [CLS] and <s> are added"
    )
    max_length: Size | None = Field(
        None, description="maximum number of tokens of a text; longer texts are cut", examples=[128]
    )

    @model_validator(mode="after")
    def _something(self) -> Self:
        if all(getattr(self, name) is None for name in type(self).model_fields):
            raise ValueError(
                "declares no constant, so nothing is compared; write one, such as padding_side:"
                " left"
            )
        return self

    def constants(self) -> preprocessing_constants.TextConstants:
        """Return the constants as contracts carry them."""
        return preprocessing_constants.TextConstants(**self.model_dump())


class ProcessorSource(RecipeModel):
    """The original's processor, if it is not beside the model's weights."""

    file: Text | None = Field(
        None, description="a preprocessor_config.json", examples=["prep/preprocessor_config.json"]
    )
    config: dict[str, Json] | None = Field(
        None,
        description="its content: transformers' class and its settings",
        examples=[{"image_processor_type": "ViTImageProcessor"}],
    )
    call: Annotated[str, Field(pattern=CALL_PATTERN)] | None = Field(
        None,
        description="your own function: an image or sound to one input without the batch",
        examples=["prep.py:prepare"],
    )

    @model_validator(mode="after")
    def _one(self) -> Self:
        given = [name for name in ("file", "config", "call") if getattr(self, name) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ValueError(f"found {found}; write one of file, config and call")
        return self


class Preprocess(RecipeModel):
    """What precedes an input; see docs/preprocessing.md."""

    fuse: Switch = Field(
        default=False,
        description=(
            "the built model takes the image as uint8 [batch, rows, columns, 3] and applies"
            " channels, scale, mean, std and layout itself"
        ),
    )
    processor: ProcessorSource | None = Field(
        None, description="the original's processor; default: the one beside the model's weights"
    )
    files: tuple[Text, ...] = Field(
        (),
        description="images or .wav files, relative to the recipe's folder",
        examples=[["samples/cat.png"]],
    )
    image: ImagePreprocess | None = Field(
        None, description="the constants that are applied to images"
    )
    audio: AudioPreprocess | None = Field(None, description="the constants applied to sound")
    text: TextPreprocess | None = Field(None, description="the constants applied to texts")

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ValueError(f"found {found}; write one of {', '.join(KINDS)}")
        if self.fuse and self.image is None:
            raise ValueError("fuse applies to images only; remove it")
        if self.text is not None and self.files:
            raise ValueError("files are images or sound; list texts in the file verify.texts")
        if self.text is not None and self.processor is not None:
            raise ValueError("processor is for images and sound; texts need the model's tokenizer")
        return self

    def constants(self) -> preprocessing_constants.Preprocessing:
        """Return the constants as contracts carry them."""
        return preprocessing_constants.Preprocessing(
            fused=self.fuse,
            image=self.image.constants() if self.image is not None else None,
            audio=self.audio.constants() if self.audio is not None else None,
            text=self.text.constants() if self.text is not None else None,
        )

    @property
    def named_files(self) -> tuple[str, ...]:
        """The files that this refers to."""
        if self.processor is None:
            return self.files
        call = self.processor.call.rpartition(":")[0] if self.processor.call else None
        return (*self.files, *filter(None, (self.processor.file, call)))


def input_faults(
    preprocess: Preprocess, dtype: str, shape: Sequence[int | str]
) -> Iterator[RecipeFault]:
    """Return what does not fit the input's dtype and shape; paths start at the input."""
    image = preprocess.image
    if image is None:
        if dtype.startswith(("int", "uint")) == (preprocess.text is None):
            kind = "features are floats" if preprocess.text is None else "tokens are integers"
            yield RecipeFault(("dtype",), f"{kind}, but the input is {dtype}")
        return
    if preprocess.fuse and dtype != "uint8":
        yield RecipeFault(("dtype",), f"the image of a fused input is uint8, found {dtype}")
    if not preprocess.fuse and not dtype.startswith(("float", "bfloat")):
        yield RecipeFault(
            ("dtype",),
            f"the original's input is of floats, found {dtype}; with fuse: true, the built model"
            " takes the image as uint8",
        )
    last = preprocess.fuse or image.layout == "channels_last"
    order = (0, 1, 2, 3) if last else (0, 2, 3, 1)
    if len(shape) != 4 or shape[order[3]] != 3:
        wanted = "[batch, rows, columns, 3]" if last else "[batch, 3, rows, columns]"
        yield RecipeFault(("shape",), f"must be {wanted}, found {list(shape)}")
        return
    size = image.constants().size
    declared = (shape[order[1]], shape[order[2]])
    if size is not None and any(
        isinstance(found, int) and found != known
        for found, known in zip(declared, size, strict=True)
    ):
        key = "crop" if image.crop is not None else "resize"
        message = f"makes images of {list(size)}, but the input's shape is {list(shape)}"
        yield RecipeFault(("preprocess", "image", key), message)


def preprocess_faults(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    """Return what does not fit the recipe's model, export and parts."""
    for path, given in _sections(recipe):
        yield from _source_faults(recipe, given, path)
    parts = mapping(recipe.get("parts"))
    joined = [((), recipe)] if parts else []
    for start, owner in (*joined, *((("parts", name), part) for name, part in parts.items())):
        for path, given in _sections(mapping(owner)):
            if given.get("fuse"):
                message = "does not apply to a model of several parts; remove it"
                yield RecipeFault((*start, *path, "fuse"), message)


def _sections(recipe: Mapping[str, object]) -> Iterator[tuple[KeyPath, Mapping[str, object]]]:
    inputs = recipe.get("inputs")
    for place, tensor in enumerate(inputs if isinstance(inputs, list | tuple) else ()):
        if given := mapping(mapping(tensor).get("preprocess")):
            yield ("inputs", place, "preprocess"), given


def _source_faults(
    recipe: Mapping[str, object], given: Mapping[str, object], path: KeyPath
) -> Iterator[RecipeFault]:
    model, original = mapping(recipe.get("model")), mapping(recipe.get("original"))
    kinds = [kind for kind in ("config", "factory", "onnx") if (original or model).get(kind)]
    if kinds and given.get("processor") is None:
        what, fix = "processor", "write processor: with file, config or call"
        if given.get("text"):
            what, fix = "tokenizer", "remove it"
        yield RecipeFault(path, f"a model from {kinds[0]} has no {what} beside it; {fix}")
    if not given.get("fuse"):
        return
    if model.get("onnx") is not None:
        yield RecipeFault(
            (*path, "fuse"), "does not apply to an ONNX file, built as it is; remove it"
        )
    if mapping(recipe.get("export")).get("exporter") == "optimum":
        yield RecipeFault((*path, "fuse"), "does not apply to the exporter optimum; write torch")
