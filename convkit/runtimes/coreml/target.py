"""A Core ML target as written in a recipe."""

import math
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from convkit.host.recipe.checks.names_axes_and_sizes import (
    FaultsError,
    RecipeFault,
    dimensions,
    mapping,
)
from convkit.host.recipe.keys.call_steps import tensors_by_name
from convkit.host.recipe.keys.field_types import MODULES_PATTERN, RecipeModel, Switch
from convkit.host.recipe.keys.held_states import open_axis, state_faults
from convkit.host.recipe.keys.precision import MixedPrecision, Precision, QuantizedPrecision
from convkit.host.recipe.keys.targets import BaseTarget
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import StageKind
from convkit.protocol.same_fields import taken_from
from convkit.runtimes.coreml.packages.options import CompressionOptions, ProgramOptions

# The oldest systems that run ML programs, and newer ones that support more operations.
DeploymentTarget = Literal[
    "iOS15",
    "iOS16",
    "iOS17",
    "iOS18",
    "macOS12",
    "macOS13",
    "macOS14",
    "macOS15",
    "watchOS8",
    "watchOS9",
    "watchOS10",
    "watchOS11",
    "tvOS15",
    "tvOS16",
    "tvOS17",
    "tvOS18",
    "visionOS1",
    "visionOS2",
]

# Core ML supports at most this many shapes per input, and enumerations for several inputs only on
# these systems and later.
_MOST_SHAPES = 128
_ENUMERATES_SEVERAL = ("iOS18", "macOS15", "watchOS11", "tvOS18", "visionOS2")
_HAS_STATES = _ENUMERATES_SEVERAL  # of the same year


# How many releases a system is behind the iOS of the same year.
_BEHIND_IOS = {"iOS": 0, "macOS": 3, "watchOS": 7, "tvOS": 0, "visionOS": 16}
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
            faults.append(RecipeFault((), "compresses nothing; write weights: int8, or prune: 0.5"))
        if self.bits is not None and self.weights != "palette":
            faults.append(
                RecipeFault(("bits",), "requires weights: palette; add that, or remove this")
            )
        if self.block_size is not None and self.weights != "int4":
            faults.append(
                RecipeFault(("block_size",), "requires weights: int4; add that, or remove this")
            )
        if faults:
            raise FaultsError(faults)
        return self

    def least_target(self) -> str:
        """Return the oldest iOS release that supports this compression."""
        return "iOS18" if self.weights == "int4" or (self.weights and self.prune) else "iOS16"


class CoreMLTarget(BaseTarget):
    """A target served by Core ML: an ML program, converted from the model itself."""

    builds_from: ClassVar[Literal["graph", "model", "file"]] = "model"

    runtime: Literal["coreml"] = Field(description="what runs the built model")
    minimum: DeploymentTarget = Field("iOS17", description="the oldest system that must run it")
    shapes: Literal["range", "enumerated"] = Field(
        "range",
        description=(
            "how the axes' sizes are declared: any size from min to max, or the combinations of"
            " min, typical and max only, which devices can prepare for"
        ),
    )
    compression: Compression | None = Field(
        None, description="how the weights are stored", examples=[{"weights": "int8"}]
    )
    images: Switch = Field(
        default=False,
        description=(
            "take images that the model normalizes (preprocess.fuse) as Core ML's ImageType, as"
            " apps have them, instead of arrays"
        ),
    )
    states: Switch = Field(
        default=False,
        description=(
            "keep what steps feeds back inside the model between calls (iOS 18), in float16,"
            " instead of as outputs and inputs"
        ),
    )

    @field_validator("precision")
    @classmethod
    def _is_served(cls, precision: Precision) -> Precision:
        low = MixedPrecision.of(precision)
        if isinstance(precision, QuantizedPrecision):
            message = (
                f"{precision.quantize} is onnxruntime's; write compression: {{weights: int8}}"
                " beside precision"
            )
            raise FaultsError([RecipeFault((), message)])
        if low is not None and low.default == "bfloat16":
            raise FaultsError([RecipeFault((), "Core ML has no bfloat16; write float16")])
        return precision

    @model_validator(mode="after")
    def _system_knows_the_compression(self) -> Self:
        if self.compression is not None and _generation(self.minimum) < _generation(
            self.compression.least_target()
        ):
            needed = self.compression.least_target()
            message = (
                f"{self.minimum} does not know this compression; write minimum: {needed}, or"
                " another compression"
            )
            raise FaultsError([RecipeFault(("minimum",), message)])
        return self

    @property
    def device(self) -> Literal["cpu"]:
        """Where the target is checked: ML programs are evaluated on the CPU, or predicted there on
        macOS.
        """
        return "cpu"

    @property
    def versions(self) -> tuple[str, ...]:
        """Always empty: Core ML has no separate releases, since it is part of the system."""
        return ()

    def options(self) -> ProgramOptions:
        """Return the options that affect the program."""
        given = self.compression
        compression = None if given is None else taken_from(CompressionOptions, given)
        return taken_from(ProgramOptions, self, compression=compression)

    @classmethod
    def drafts(cls) -> Iterator[tuple[str, dict[str, Json]]]:
        """Return both types, and compressed weights with the oldest system that reads them."""
        low: Json = {"default": "float16", "keep_float32": "auto"}
        yield "float32", {"minimum": "iOS17", "precision": "float32"}
        yield "float16", {"minimum": "iOS17", "precision": low}
        for weights, minimum in (("int8", "iOS17"), ("int4", "iOS18")):
            compression: Json = {"weights": weights}
            yield (
                weights,
                {"minimum": minimum, "precision": "float16", "compression": compression},
            )

    @property
    def builds_with_steps(self) -> bool:
        """True if the build must know which outputs feed which inputs."""
        return self.states

    def packages(self, stage: StageKind, *, stand_in: bool) -> tuple[str, ...]:
        """Return one environment's packages: converting and evaluating need the same ones."""
        del stage, stand_in
        return ("coremltools", "torch", "numpy", "safetensors")

    @classmethod
    def faults(
        cls, name: str, target: Mapping[str, object], recipe: Mapping[str, object]
    ) -> Iterator[RecipeFault]:
        """Return requests that Core ML cannot fulfill: a graph, empty tensors, too many shapes."""
        place = ("targets", name)
        if mapping(recipe.get("model")).get("onnx") is not None:
            message = (
                "coreml converts the model itself, and model.onnx is a graph; name the model that"
                " it was exported from under model"
            )
            yield RecipeFault((*place, "runtime"), message)
        if mapping(recipe.get("model")).get("torchscript") is not None:
            message = (
                "coreml converts what torch.export traces, and it refuses TorchScript; name the"
                " module that was scripted, or its .pt2 archive, under model"
            )
            yield RecipeFault((*place, "runtime"), message)
        yield from _empty_faults(place, recipe)
        if target.get("images") is True:
            yield from image_faults(place, recipe)
        if target.get("states") is True:
            if target.get("minimum", "iOS17") not in _HAS_STATES:
                message = "needs iOS 18 or a system of its year; write minimum: iOS18"
                yield RecipeFault((*place, "states"), message)
            yield from state_faults(place, recipe)
        if target.get("shapes") == "enumerated":
            yield from _shape_faults(place, target, recipe)


def _empty_faults(place: tuple[str, ...], recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    """Return axes that may be empty: a program converts, and fails when it runs.

    Source: the issues 1040 and 2516 of coremltools.
    """
    for axis, given in mapping(recipe.get("axes")).items():
        if mapping(given).get("min") == 0:
            message = (
                f"Core ML cannot run empty tensors, and axes.{axis}.min is 0; write min: 1, or move"
                " this target to its own recipe"
            )
            yield RecipeFault((*place, "runtime"), message)


def _shape_faults(
    place: tuple[str, ...], target: Mapping[str, object], recipe: Mapping[str, object]
) -> Iterator[RecipeFault]:
    axes = [mapping(axis) for axis in mapping(recipe.get("axes")).values()]
    sizes = [
        {size for key in ("min", "typical", "max") if isinstance(size := axis.get(key), int)}
        for axis in axes
    ]
    count = math.prod(max(len(each), 1) for each in sizes)
    varying = {path for path, _, names in dimensions(recipe) if path[0] == "inputs" for _ in names}
    inputs = {path[1] for path in varying}
    if count > _MOST_SHAPES:
        message = (
            f"{count} combinations of the axes' sizes; Core ML serves at most {_MOST_SHAPES}: write"
            " shapes: range"
        )
        yield RecipeFault((*place, "shapes"), message)
    if len(inputs) > 1 and target.get("minimum", "iOS17") not in _ENUMERATES_SEVERAL:
        message = (
            f"enumerates the shapes of {len(inputs)} inputs, which needs iOS 18 or later; write"
            " minimum: iOS18, or shapes: range"
        )
        yield RecipeFault((*place, "shapes"), message)


def _generation(target: str) -> int:
    """Return the iOS release that appeared together with a deployment target."""
    system = target.rstrip("0123456789")
    return int(target.removeprefix(system)) + _BEHIND_IOS[system]


def image_faults(place: tuple[str, ...], recipe: Mapping[str, object]) -> Iterator[RecipeFault]:
    """Return why a program cannot take the recipe's images: one at a time, of one size."""
    place = (*place, "images")
    fused = {
        name: tensor["shape"]
        for name, tensor in tensors_by_name(recipe, "inputs").items()
        if mapping(tensor.get("preprocess")).get("fuse") is True
    }
    if not fused:
        message = "needs an input whose images the model normalizes; write preprocess: {fuse: true}"
        yield RecipeFault(place, message)
    axes = mapping(recipe.get("axes"))
    for name, shape in fused.items():
        for dimension in shape:
            if (axis := open_axis(dimension, recipe)) is not None:
                message = (
                    f"an image has one size, and {name!r} has the axis {axis!r}; write"
                    f" axes.{axis} with equal min and max, or a number in the shape"
                )
                yield RecipeFault(place, message)
        first = shape[0] if shape else 1
        rows = mapping(axes.get(first)).get("max") if isinstance(first, str) else first
        if rows != 1:
            yield RecipeFault(
                place, f"Core ML takes one image at a time: let {name!r} have one row"
            )
