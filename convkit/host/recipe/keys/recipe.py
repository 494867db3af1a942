"""A recipe as typed, frozen data. Unknown keys are errors. Every key has a description, which the
JSON Schema includes.

`convkit.host.recipe.reading.validation_messages` uses the descriptions and examples to turn
pydantic's errors into sentences.
"""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, PrivateAttr, model_validator

from convkit.host.recipe.checks.names_axes_and_sizes import FaultsError
from convkit.host.recipe.keys.all_targets import faults_between_parts
from convkit.host.recipe.keys.bench import Bench, Goals
from convkit.host.recipe.keys.call_steps import StepsModel
from convkit.host.recipe.keys.custom_operators import CustomOp, short_form
from convkit.host.recipe.keys.evaluation import Evaluate
from convkit.host.recipe.keys.field_types import (
    NPZ_PATTERN,
    REGISTERED_PATTERN,
    AxisName,
    Name,
    PartName,
    RecipeModel,
    Seconds,
    Seed,
    Text,
)
from convkit.host.recipe.keys.inputs_and_outputs import (
    Audio,
    Columns,
    Constant,
    File,
    Image,
    Input,
    Integers,
    Lengths,
    Normal,
    Offsets,
    OneOf,
    Output,
    Sample,
    SampleName,
    Strings,
    Tensor,
    Uniform,
)
from convkit.host.recipe.keys.join_wiring import resolve_join
from convkit.host.recipe.keys.model_parts import JoinEntry, Part, part_content
from convkit.host.recipe.keys.model_sources import (
    NO_MODEL,
    SOURCE_KINDS,
    ConfigModel,
    FactoryModel,
    HubModel,
    Model,
    PackageModel,
    registered_only,
)
from convkit.host.recipe.keys.overridable_settings import (
    AnyAxis,
    Axis,
    ComputedType,
    DataAxis,
    Export,
    Match,
    PrecisionLimits,
    Tolerance,
    Tools,
)
from convkit.host.recipe.keys.precision import MixedPrecision, Precision, QuantizedPrecision
from convkit.host.recipe.keys.preprocessing import ProcessorSource
from convkit.host.recipe.keys.target_models import Target
from convkit.host.recipe.keys.targets import GraphTarget
from convkit.host.recipe.keys.waivers import Waiver
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import CaseName, Flow, Ladder, StageKind
from convkit.protocol.metrics.metric_registry import DEFAULTS

__all__ = [
    "ALWAYS_RUN",
    "SOURCE_KINDS",
    "Audio",
    "Axis",
    "Columns",
    "ComputedType",
    "ConfigModel",
    "Constant",
    "CustomOp",
    "DataAxis",
    "Export",
    "FactoryModel",
    "File",
    "GraphTarget",
    "HubModel",
    "Image",
    "Input",
    "Integers",
    "Lengths",
    "Match",
    "MixedPrecision",
    "Model",
    "Normal",
    "Offsets",
    "OneOf",
    "Output",
    "PackageModel",
    "Precision",
    "PrecisionLimits",
    "ProcessorSource",
    "QuantizedPrecision",
    "Recipe",
    "RecipeModel",
    "Sample",
    "SampleName",
    "StepsModel",
    "Strings",
    "Target",
    "Tensor",
    "Tolerance",
    "Tools",
    "Track",
    "Uniform",
    "Verify",
    "Waiver",
]


ALWAYS_RUN: tuple[str, ...] = ("example", "smallest", "padded", "masked-row")


class Verify(RecipeModel):
    """How built models are compared with the original."""

    seed: Seed = Field(0, description="seed of the sampled inputs")
    texts: Text | None = Field(
        None,
        description=(
            "a UTF-8 file with one text per line, for the model's own tokenizer; relative to the"
            " recipe's folder"
        ),
        examples=["samples/sentences.txt"],
    )
    example: Annotated[str, Field(pattern=NPZ_PATTERN)] | None = Field(
        None,
        description=(
            "an .npz file with one array for each input, verified as a case of its own; relative to"
            " the recipe's folder; `convkit init --example` writes it"
        ),
        examples=["bert.example.npz"],
    )
    tolerance: Tolerance = Field(
        default_factory=lambda: Tolerance.model_validate(
            {name: float(value) for name, value in DEFAULTS.items()}
        ),
        description=f"default: {' and '.join(map(' '.join, DEFAULTS.items()))}",
    )
    outputs: dict[str, Tolerance] = Field(
        default_factory=dict, description="tolerances by output, in place of `tolerance`"
    )
    by_precision: dict[ComputedType, PrecisionLimits] = Field(
        default_factory=dict,
        description=(
            "limits of targets that compute in this type, in place of `tolerance`: what was"
            " measured in float32 says nothing of float16"
        ),
        examples=[{"float32": {"tolerance": {"max_abs": 1.0e-4}}}],
    )
    budget: Seconds | None = Field(
        None,
        description=(
            "seconds of inference per verification; cases left out are listed in the result"
        ),
    )
    ladder: Ladder = Field(
        "full",
        description=(
            "quick: only smallest, typical, padded and masked-row, for trying things out; what is"
            " left out is listed in the result"
        ),
    )
    skip: tuple[CaseName, ...] = Field((), description="cases to leave out; listed in the result")
    timeout: Seconds = Field(3600, description="seconds after which a stage is stopped")


class Track(RecipeModel):
    """How runs are logged to MLflow."""

    experiment: Annotated[str, Field(min_length=1, max_length=250)] | None = Field(
        None,
        description="MLflow experiment; default: convkit/<recipe name>",
        examples=["convkit/bert"],
    )


def _schema_of_one_or_parts(schema: dict[str, Any]) -> None:
    """Let the JSON Schema accept `parts` and `join` in place of `model`."""
    schema["required"] = [key for key in schema["required"] if key != "model"]
    schema["oneOf"] = [{"required": ["model"]}, {"required": ["parts", "join"]}]


def _check_schema_version(value: object) -> object:
    if type(value) is not int:  # Literal[1] alone accepts True and 1.0, which equal 1
        raise ValueError("write schema: 1")
    return value


class Recipe(RecipeModel):
    """A convkit recipe."""

    model_config = ConfigDict(
        populate_by_name=True, title="convkit recipe", json_schema_extra=_schema_of_one_or_parts
    )

    schema_version: Annotated[Literal[1], BeforeValidator(_check_schema_version)] = Field(
        alias="schema", description="version of this format"
    )
    name: Name = Field(
        description="the recipe's name; runs and artifacts are listed under it", examples=["bert"]
    )
    description: str = Field("", description="free text: what is converted, and for whom")
    model: Annotated[
        Model,
        BeforeValidator(
            registered_only,
            json_schema_input_type=Model | Annotated[str, Field(pattern=REGISTERED_PATTERN)],
        ),
    ] = Field(
        description=(
            "the model to convert; models:/NAME@ALIAS or models:/NAME/VERSION for one of MLflow's"
            " registry, in its onnx or transformers flavor"
        ),
        examples=[{"path": "../my-bert"}, "models:/bert@baseline"],
    )
    original: Model | None = Field(
        None,
        description=(
            "with model.onnx: the model that the file was exported from and is compared with; with"
            " parts: the whole model, which the joined parts are compared with"
        ),
        examples=[{"path": "../my-bert"}],
    )
    tools: Tools = Field(default_factory=Tools, description="tool versions, as PEP 440 specifiers")
    export: Export = Field(default_factory=Export, description="how the model becomes ONNX")
    custom_ops: tuple[
        Annotated[CustomOp, BeforeValidator(short_form, json_schema_input_type=str | CustomOp)], ...
    ] = Field(
        (),
        description=(
            "custom operators: shared libraries for onnxruntime or another runtime, and"
            " path/to/file.py:function for torch's exporters; see docs/how-to/custom-operators.md"
        ),
        examples=[["build/libmyops.so", "ops.py:translations"]],
    )
    axes: dict[AxisName, AnyAxis] = Field(
        default_factory=dict,
        description="symbolic axes and their sizes, by name; from: data for a count of rows",
        examples=[{"batch": {"min": 1, "typical": 4, "max": 16}}],
    )
    inputs: Annotated[tuple[Input, ...], Field(min_length=1)] = Field(
        description="the inputs; their order is part of the contract",
        examples=[
            [
                {
                    "name": "input_ids",
                    "dtype": "int64",
                    "shape": ["batch", "sequence"],
                    "sample": "token_ids",
                }
            ]
        ],
    )
    outputs: Annotated[tuple[Output, ...], Field(min_length=1)] = Field(
        description="the outputs; their order is part of the contract",
        examples=[[{"name": "logits", "dtype": "float32", "shape": ["batch", 2]}]],
    )
    steps: StepsModel | None = Field(
        None,
        description="how the model is called in a loop: outputs that feed inputs of the next call",
        examples=[{"feeds": {"present.*": "past.*"}, "axis": "sequence"}],
    )
    parts: dict[PartName, Part] = Field(
        default_factory=dict,
        description="in place of model: the graphs of a model that has several, by name",
        examples=[{"encoder": {"model": {"path": "../my-encoder"}}}],
    )
    join: tuple[JoinEntry, ...] = Field(
        (),
        description="how the parts call each other",
        examples=[[{"call": "encoder"}, {"call": "decoder", "inputs": {"h": "encoder.h"}}]],
    )
    verify: Verify = Field(
        default_factory=Verify, description="how built models are compared with the original"
    )
    targets: Annotated[dict[Name, Target], Field(min_length=1)] = Field(
        description="what to build, by name: each has a runtime, device, precision and tolerance",
        examples=[{"ort-cpu": {"runtime": "onnxruntime"}}],
    )
    evaluate: Evaluate | None = Field(
        None,
        description="a metric on your own data, which must not drop; see docs/evaluate.md",
        examples=[
            {
                "data": "samples/images.npz",
                "inputs": {"pixel_values": "image"},
                "labels": "label",
                "metric": "accuracy",
                "max_drop": 0.01,
            }
        ],
    )
    bench: Bench = Field(default_factory=Bench, description="how `convkit bench` measures")
    goals: Goals | None = Field(
        None,
        description="what `convkit bench` requires of every target, compared with the original",
        examples=[{"latency": {"p50": "<= 0.8x original"}, "size": "<= 0.5x original"}],
    )
    waive: tuple[Waiver, ...] = Field(
        (),
        description="known errors of a target, accepted until a day; see docs/waivers.md",
        examples=[
            [
                {
                    "code": "N101",
                    "target": "ort-int8",
                    "reason": "the ranking is unchanged",
                    "until": "2027-01-31",
                }
            ]
        ],
    )
    track: Track = Field(default_factory=Track, description="how runs are logged to MLflow")

    _part: str | None = PrivateAttr(None)

    @model_validator(mode="before")
    @classmethod
    def _of_parts(cls, content: object) -> object:
        """With parts, no model is required."""
        if isinstance(content, dict) and content.get("parts") and "model" not in content:
            return {**content, "model": NO_MODEL}
        return content

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if faults := faults_between_parts(self.dump()):
            raise FaultsError(faults)
        return self

    @property
    def reference_model(self) -> Model:
        """The model that built models are compared with."""
        return self.original or self.model

    @property
    def part_name(self) -> str | None:
        """The name of the part that this recipe is; None for a recipe as the user wrote it."""
        return self._part

    def part(self, name: str) -> "Recipe":
        """Return a part as a recipe: what it lacks comes from the whole. Its targets
        are called `<target>/<part>`; raises KeyError for an unknown part.
        """
        self.parts[name]
        whole = Recipe.model_validate(part_content(self.dump(), name))
        targets = {part_target(target, name): each for target, each in whole.targets.items()}
        found = whole.model_copy(update={"targets": targets})
        found._part = name  # noqa: SLF001 - its own class
        return found

    @property
    def graphs(self) -> "tuple[Recipe, ...]":
        """The recipes of one graph each: the parts, or the recipe itself if it has none."""
        return tuple(self.part(name) for name in self.parts) or (self,)

    def owner_of(self, target: str) -> "Recipe":
        """Return the recipe that has a target: a part for a part's share, else this one."""
        part = target.rpartition("/")[2]
        return self.part(part) if target not in self.targets and part in self.parts else self

    def shares_of(self, target: str) -> dict[str, Target]:
        """Return each part's share of a target, by the share's name; without parts, the target."""
        if not self.parts:
            return {target: self.targets[target]}
        names = {part_target(target, part.part_name or ""): part for part in self.graphs}
        return {name: part.targets[name] for name, part in names.items()}

    @property
    def flow(self) -> Flow:
        """How the parts call each other."""
        return resolve_join(self.dump()).flow

    def goals_of(self, target: str) -> Goals | None:
        """Return a target's goals: its own, or else the recipe's."""
        return self.targets[target].goals or self.goals

    def export_of(self, target: str | None) -> Export:
        """Return the export settings for a target's graph: its own, or else the recipe's."""
        own = self.targets[target].export_settings if target is not None else None
        return own or self.export

    def loads_model(self, target: str, stage: StageKind) -> bool:
        """Return True if a target's stage loads the model itself, or may have to."""
        owner = self.targets[target]
        if owner.builds_from != "graph":
            return owner.builds_from == "model" and stage in ("precision", "build")
        is_module = self.model.onnx is None and self.model.torchscript is None
        return stage == "build" and bool(owner.fallback_packages) and is_module

    def dump(self) -> dict[str, Json]:
        """Return the recipe as JSON values, under the keys a user writes, without defaults."""
        dump = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        if self.parts:
            dump.pop("model")
        return dump


def target_key(name: str) -> str:
    """Return the key path of a target; that of a part's share is below the part."""
    target, _, part = name.rpartition("/")
    return f"parts.{part}.targets.{target}" if target else f"targets.{name}"


def part_target(target: str, part: str) -> str:
    """Return the name of a part's share of a target."""
    return f"{target}/{part}"
