"""A TensorRT target as written in a recipe."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from convkit.host.recipe.keys.field_types import RecipeModel, Switch
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import StageKind
from convkit.protocol.same_fields import taken_from
from convkit.runtimes.tensorrt import options
from convkit.runtimes.tensorrt.target_engines import (
    GRAPH_PACKAGES,
    HAS_PARSER,
    PARSER_PACKAGES,
    EngineTarget,
)


class Dla(RecipeModel):
    """A deep learning accelerator next to the GPU, as on Jetson."""

    core: Annotated[int, Field(strict=True, ge=0, le=7)] = Field(description="which one, from 0")
    fallback: Switch = Field(default=True, description="layers that it has not run on the GPU")


class TensorRTTarget(EngineTarget):
    """A target served by TensorRT 10 or 11: a strongly typed engine for one kind of GPU."""

    runtime_package: ClassVar[str] = "tensorrt"

    runtime: Literal["tensorrt"] = Field(description="what runs the built model")

    workspace_gib: Annotated[float, Field(strict=True, gt=0, allow_inf_nan=False)] | None = Field(
        None,
        description=("workspace limit for one layer, in GiB; default: all of the device's memory"),
    )
    builder_level: Annotated[int, Field(strict=True, ge=0, le=5)] = Field(
        3, description="how long the builder looks for faster kernels: 0 to 5"
    )
    version_compatible: Switch = Field(
        default=False,
        description="true: later releases of the same major TensorRT load the engine too",
    )
    hardware_compatible: Literal["none", "ampere_plus", "same_compute_capability"] = Field(
        "none", description="which other GPUs load the engine too"
    )
    weights: Literal["fixed", "refit", "strip"] = Field(
        "fixed",
        description=(
            "refit: weights can be replaced in the built engine; strip: they are left out of it"
        ),
    )
    sparse_weights: Switch = Field(
        default=False,
        description="true: kernels for weights of which two in four are zero may be used",
    )
    dla: Dla | None = Field(
        None,
        description="the accelerator to build for, in addition to the GPU",
        examples=[{"core": 0}],
    )

    @classmethod
    def refinements(cls, target: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
        """Return the longest search for kernels."""
        if target.get("builder_level", 3) != 5:
            yield {"builder_level": 5}

    @property
    def versions(self) -> tuple[str, ...]:
        """Always empty: an engine only runs with the release that built it."""
        return ()

    def options(self) -> options.EngineOptions:
        """Return the options that affect the engine."""
        dla = options.Dla(self.dla.core, self.dla.fallback) if self.dla is not None else None
        return taken_from(options.EngineOptions, self, profiles=self.sizes_of_profiles(), dla=dla)

    def packages(self, stage: StageKind, *, stand_in: bool) -> tuple[str, ...]:
        """Return a stage's packages: onnxruntime simulates the same graph alongside an engine, and
        TensorRT-RTX's parser answers for an absent TensorRT's where it has wheels.
        """
        if stand_in and stage == "build" and HAS_PARSER:
            return (*GRAPH_PACKAGES, *PARSER_PACKAGES)
        if stand_in or stage == "precision":
            return GRAPH_PACKAGES
        return ("tensorrt", "cuda-python", *GRAPH_PACKAGES)

    def absent(self, why: str) -> tuple[str, Literal["warning", "note"]]:
        """Return the message for a target without an engine, and its severity."""
        return f"no engine was built: {why}", "warning"

    @property
    def verdict_without_device(self) -> Literal["judged", "foreseen"]:
        """The graph alone proves nothing about an engine."""
        return "foreseen"
