"""What follows an output: the constants that the app applies, and the original's postprocessor."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from convkit.host.recipe.checks.names_axes_and_sizes import KeyPath, RecipeFault, mapping, perhaps
from convkit.host.recipe.keys.call_steps import tensors_by_name
from convkit.host.recipe.keys.field_types import (
    Number,
    RecipeModel,
    Switch,
    TensorName,
    Text,
    Whole,
)
from convkit.host.recipe.keys.preprocessing import ProcessorSource
from convkit.protocol import postprocessing_constants
from convkit.protocol.postprocessing_constants import Activation, BoxFormat

KINDS = ("labels", "boxes", "text")
# The key of each kind that lists names, which `file` can list instead.
NAMES = {"labels": "names", "boxes": "names", "text": "symbols"}
MOST_NAMES_BYTES = 1 << 20

_FILE = Field(
    None,
    description="a UTF-8 file with one name per line, in place of the list; relative to the"
    " recipe's folder",
    examples=["labels.txt"],
)
_Share = Annotated[float, Field(strict=True, gt=0, le=1)]


class LabelPostprocess(RecipeModel):
    """How scores, along the last dimension, become labels."""

    names: tuple[Text, ...] = Field(
        (), description="the labels in the scores' order", examples=[["cat", "dog"]]
    )
    file: Text | None = _FILE
    activation: Activation = Field("softmax", description="what is applied to the scores")
    threshold: Number | None = Field(
        None,
        description="labels with a larger score are kept; default: the one with the best score",
    )

    def constants(self) -> postprocessing_constants.LabelConstants:
        """Return the constants as contracts carry them."""
        return postprocessing_constants.LabelConstants(**self.model_dump(exclude={"file"}))


class BoxPostprocess(RecipeModel):
    """How boxes [.., rows, 4] and scores [.., rows, labels] become detections."""

    scores: TensorName = Field(description="the output with the scores", examples=["logits"])
    names: tuple[Text, ...] = Field(
        (), description="the labels in the scores' order", examples=[["cat", "dog"]]
    )
    file: Text | None = _FILE
    activation: Activation = Field("sigmoid", description="what is applied to the scores")
    format: BoxFormat = Field(
        "center", description="center: center x, center y, width, height; corners: x1, y1, x2, y2"
    )
    threshold: Number = Field(0.5, description="detections with a larger score are kept")
    overlap: _Share | None = Field(
        None,
        description="of boxes of one label that overlap by more, the best is kept (intersection"
        " over union); default: all are",
    )
    several: Switch = Field(
        default=False, description="a box can have several labels; otherwise its best"
    )
    no_object: Switch = Field(
        default=False, description="the last score means that there is no object"
    )

    def constants(self) -> postprocessing_constants.BoxConstants:
        """Return the constants as contracts carry them."""
        return postprocessing_constants.BoxConstants(**self.model_dump(exclude={"file"}))


class CtcPostprocess(RecipeModel):
    """How scores [.., time, symbols] become text, by CTC's rule."""

    symbols: tuple[Annotated[str, Field(strict=True)], ...] = Field(
        (), description="the symbols in the scores' order", examples=[["", "a", "b"]]
    )
    file: Text | None = _FILE
    blank: Annotated[Whole, Field(ge=0)] = Field(0, description="the number of the blank symbol")
    space: Text | None = Field(
        None, description="the symbol that stands for a space", examples=["|"]
    )

    def constants(self) -> postprocessing_constants.CtcConstants:
        """Return the constants as contracts carry them."""
        return postprocessing_constants.CtcConstants(**self.model_dump(exclude={"file"}))


class Postprocess(RecipeModel):
    """What follows an output; see docs/postprocessing.md."""

    processor: ProcessorSource | None = Field(
        None,
        description="the original's own postprocessor; default: the model's id2label, the image"
        " processor beside its weights, or its tokenizer",
    )
    labels: LabelPostprocess | None = Field(None, description="scores become labels")
    boxes: BoxPostprocess | None = Field(None, description="boxes and scores become detections")
    text: CtcPostprocess | None = Field(None, description="scores of symbols become text (CTC)")
    agreement: _Share | None = Field(
        None,
        description="the least share of rows for which built models have the original's result;"
        " default: all but ties",
        examples=[0.99],
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if len(given) != 1:
            found = " and ".join(given) or "none of them"
            raise ValueError(f"found {found}; write one of {', '.join(KINDS)}")
        source = self.processor
        if source is not None and source.call is None and self.boxes is None:
            raise ValueError(
                "processor: for labels and text, write call: file.py:function, or leave it out for"
                " the model's own"
            )
        return self

    def constants(self) -> postprocessing_constants.Postprocessing:
        """Return the constants as contracts carry them."""
        return postprocessing_constants.Postprocessing(
            labels=self.labels.constants() if self.labels is not None else None,
            boxes=self.boxes.constants() if self.boxes is not None else None,
            text=self.text.constants() if self.text is not None else None,
        )

    @property
    def named_files(self) -> tuple[str, ...]:
        """The files that this refers to."""
        names = next(each.file for each in (self.labels, self.boxes, self.text) if each is not None)
        source = self.processor
        call = source.call.rpartition(":")[0] if source is not None and source.call else None
        return tuple(filter(None, (names, source.file if source is not None else None, call)))


def postprocess_faults(recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    """Return what does not fit the recipe's outputs and model."""
    outputs = tensors_by_name(recipe, "outputs")
    for path, given, tensor in _sections(recipe):
        shape = tensor.get("shape")
        sizes = list(shape) if isinstance(shape, list | tuple) else []
        kind = next((each for each in KINDS if given.get(each) is not None), None)
        constants = mapping(given.get(kind)) if kind is not None else {}
        if not str(tensor.get("dtype")).startswith(("float", "bfloat")):
            yield RecipeFault(
                (*path[:-1], "dtype"), f"{kind} are computed from floats: scores or boxes"
            )
        if kind == "labels" and sizes:
            yield from _count_fault(constants.get("names"), sizes[-1], 0, (*path, "labels"))
        elif kind == "boxes":
            yield from _box_faults(constants, sizes, outputs, path)
        elif kind == "text" and len(sizes) < 2:
            yield RecipeFault(
                (*path[:-1], "shape"), f"must be [batch, time, symbols], found {sizes}"
            )
        elif kind == "text":
            yield from _count_fault(constants.get("symbols"), sizes[-1], 0, (*path, "text"))
            if not constants.get("symbols") and not constants.get("file"):
                yield RecipeFault((*path, "text"), "declares no symbols; write symbols or file")


def _sections(
    recipe: Mapping[str, object],
) -> Iterator[tuple[KeyPath, Mapping[str, object], Mapping[str, object]]]:
    found = recipe.get("outputs")
    for place, tensor in enumerate(found if isinstance(found, list | tuple) else ()):
        if given := mapping(mapping(tensor).get("postprocess")):
            yield ("outputs", place, "postprocess"), given, mapping(tensor)


def _box_faults(
    constants: Mapping[str, object],
    sizes: list[object],
    outputs: Mapping[str, Mapping[str, Any]],
    path: KeyPath,
) -> Iterator[RecipeFault]:
    if len(sizes) < 2 or sizes[-1] != 4:
        yield RecipeFault((*path[:-1], "shape"), f"must be [batch, rows, 4], found {sizes}")
    name = str(constants.get("scores"))
    place = (*path, "boxes")
    if name not in outputs:
        known = list(outputs)
        message = f"{name!r} is not an output{perhaps(name, known)}"
        yield RecipeFault((*place, "scores"), message)
        return
    shape = list(outputs[name].get("shape") or ())
    if len(shape) < 2 or shape[:-1] != sizes[:-1]:
        message = f"{name!r} must be [{', '.join(map(str, sizes[:-1]))}, labels], found {shape}"
        yield RecipeFault((*place, "scores"), message)
        return
    yield from _count_fault(
        constants.get("names"), shape[-1], int(bool(constants.get("no_object"))), place
    )


def _count_fault(names: object, size: object, spare: int, path: KeyPath) -> Iterator[RecipeFault]:
    count = len(names) if isinstance(names, list | tuple) else 0
    if count and isinstance(size, int) and not isinstance(size, bool) and count != size - spare:
        message = f"has {count} names for {size - spare} scores"
        yield RecipeFault((*path, NAMES[str(path[-1])]), message)


def names_fault(dirname: Path, text: str) -> str | None:
    """Return why a present file does not list names; None if it does."""
    try:
        if (dirname / text).stat().st_size > MOST_NAMES_BYTES:
            return f"{text!r} is larger than 1 MiB; write one name per line"
        names = _listed(dirname / text)
    except (OSError, UnicodeDecodeError) as error:
        return f"{text!r} cannot be read as UTF-8 text: {error}"
    return None if any(names) else f"{text!r} contains no names; write one per line"


def with_names(content: Mapping[str, Any], dirname: Path) -> dict[str, Any]:
    """Return a recipe's content with the names that its files list. Files that cannot be read leave
    it as it is: they are reported as faults.
    """
    found: dict[str, Any] = copy.deepcopy(dict(content))
    parts = [part for part in mapping(found.get("parts")).values() if isinstance(part, dict)]
    for owner in (found, *parts):
        for _, given, _ in _sections(owner):
            for kind, key in NAMES.items():
                constants = given.get(kind)
                if not isinstance(constants, dict) or constants.get(key):
                    continue
                text = constants.get("file")
                if not isinstance(text, str):
                    continue
                if (dirname / text).is_file() and names_fault(dirname, text) is None:
                    constants[key] = _listed(dirname / text)
    return found


def _listed(file: Path) -> list[str]:
    """Return a file's lines; an empty line at the end is not a name."""
    return file.read_text(encoding="utf-8").splitlines()
