"""A given model as written in a recipe."""

from pathlib import Path, PurePosixPath
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from convkit.host.recipe.keys.field_types import TensorName, Text
from convkit.host.recipe.keys.precision import Precision
from convkit.host.recipe.keys.targets import BaseTarget
from convkit.protocol.messages import StageKind
from convkit.runtimes.given.formats import FORMATS, files_of
from convkit.runtimes.given.options import GivenOptions


class GivenTarget(BaseTarget):
    """A model that somebody else built, verified as it is."""

    builds_from: ClassVar[Literal["graph", "model", "file"]] = "file"

    runtime: Literal["given"] = Field(description="what runs the built model")
    file: Text = Field(
        description=(
            "the built model, relative to the recipe's folder: .tflite, .xml (OpenVINO, with its"
            " .bin), .mlpackage (an ML program) or .onnx"
        ),
        examples=["theirs.tflite"],
    )
    names: dict[TensorName, TensorName] = Field(
        default_factory=dict,
        description="the file's own names of inputs and outputs, by the recipe's",
        examples=[{"logits": "StatefulPartitionedCall:0"}],
    )

    @field_validator("file")
    @classmethod
    def _is_known(cls, file: str) -> str:
        if PurePosixPath(file).suffix not in FORMATS:
            known = ", ".join(f"{suffix} ({each.name})" for suffix, each in FORMATS.items())
            raise ValueError(f"found {file!r}; known formats: {known}")
        return file

    @field_validator("precision")
    @classmethod
    def _has_its_own(cls, precision: Precision) -> Precision:
        if precision != "float32":
            raise ValueError("a given file has its own precision; remove it")
        return precision

    @property
    def device(self) -> Literal["cpu"]:
        """Where the file runs."""
        return "cpu"

    @property
    def versions(self) -> tuple[str, ...]:
        """Always empty: `tools` names the release that runs the file."""
        return ()

    @property
    def files(self) -> tuple[str, ...]:
        """The file, and the one with its weights if there are two."""
        return files_of(self.file)

    @property
    def given(self) -> tuple[str, ...]:
        """The files that the build takes over."""
        return self.files

    def damage(self, file: Path) -> str | None:
        """Return what is visibly wrong with the file."""
        check = FORMATS[file.suffix].damage
        return None if check is None else check(file)

    def options(self) -> GivenOptions:
        """Return the format and the names."""
        return GivenOptions(PurePosixPath(self.file).suffix, dict(self.names))

    def packages(self, stage: StageKind, *, stand_in: bool) -> tuple[str, ...]:
        """Return what opens the format."""
        del stage, stand_in
        return FORMATS[PurePosixPath(self.file).suffix].packages
