"""A TensorRT target as written in a recipe."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field, field_validator

from convkit.host.recipe.checks.names_axes_and_sizes import FaultsError, RecipeFault
from convkit.host.recipe.keys.field_types import AxisName, RecipeModel, Switch
from convkit.host.recipe.keys.overridable_settings import Axis
from convkit.host.recipe.keys.precision import Precision, QuantizedPrecision
from convkit.host.recipe.keys.targets import GraphTarget, Places
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import Precision as WorkerPrecision
from convkit.protocol.messages import Quantization, StageKind
from convkit.protocol.same_fields import taken_from
from convkit.runtimes.tensorrt import options
from convkit.runtimes.tensorrt.target_profile_checks import profile_faults

# The graph that an engine would be built from, and its simulation.
_STAND_IN = ("onnxruntime", "numpy", "onnx", "onnx-ir")


class Dla(RecipeModel):
    """A deep learning accelerator next to the GPU, as on Jetson."""

    core: Annotated[int, Field(strict=True, ge=0, le=7)] = Field(description="which one, from 0")
    fallback: Switch = Field(default=True, description="layers that it has not run on the GPU")


class TensorRTTarget(GraphTarget):
    """A target served by TensorRT 10 or 11: a strongly typed engine for one kind of GPU."""

    runtime_package: ClassVar[str] = "tensorrt"

    runtime: Literal["tensorrt"] = Field(description="what runs the built model")
    profiles: tuple[dict[AxisName, Axis], ...] = Field(
        (),
        description=(
            "optimization profiles: the axis sizes that each is tuned for; others as under axes; "
            "default: one, with the sizes of axes"
        ),
        examples=[
            [
                {"batch": {"min": 1, "typical": 1, "max": 1}},
                {"batch": {"min": 2, "typical": 8, "max": 16}},
            ]
        ],
    )
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

    @field_validator("precision")
    @classmethod
    def _is_served(cls, precision: Precision) -> Precision:
        if not isinstance(precision, QuantizedPrecision):
            return precision
        if precision.quantize == "dynamic-int8":
            message = (
                "dynamic-int8 is onnxruntime's; write static-int8, or int4-weights with format: qdq"
            )
            raise FaultsError([RecipeFault(("quantize",), message)])
        if precision.format == "operators" or (
            precision.quantize == "int4-weights" and precision.format is None
        ):
            message = (
                "TensorRT reads quantization from QuantizeLinear and DequantizeLinear; write"
                " format: qdq"
            )
            raise FaultsError([RecipeFault(("format",), message)])
        return precision

    @classmethod
    def variants(cls) -> Iterator[dict[str, Json]]:
        """Return every precision of engines."""
        for precision in ("float32", "float16", "bfloat16"):
            yield {"precision": precision}
        yield {"precision": {"quantize": "static-int8"}}
        yield {"precision": {"quantize": "int4-weights", "format": "qdq"}}

    @classmethod
    def refinements(cls, target: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
        """Return the longest search for kernels."""
        if target.get("builder_level", 3) != 5:
            yield {"builder_level": 5}

    @property
    def device(self) -> Literal["cuda"]:
        """Where engines are built and run."""
        return "cuda"

    @property
    def versions(self) -> tuple[str, ...]:
        """Always empty: an engine only runs with the release that built it."""
        return ()

    def options(self) -> options.EngineOptions:
        """Return the options that affect the engine."""
        profiles = tuple(
            {axis: sizes.model_dump() for axis, sizes in profile.items()}
            for profile in self.profiles
        )
        dla = options.Dla(self.dla.core, self.dla.fallback) if self.dla is not None else None
        return taken_from(options.EngineOptions, self, profiles=profiles, dla=dla)

    def worker_precision(self, place: Places) -> WorkerPrecision:
        """Return the precision; quantization is symmetric: TensorRT has no other zero points."""
        precision = super().worker_precision(place)
        if not isinstance(precision, Quantization):
            return precision
        return dataclasses.replace(precision, symmetric=True)

    def packages(self, stage: StageKind, *, stand_in: bool) -> tuple[str, ...]:
        """Return a stage's packages: onnxruntime simulates the same graph alongside an engine."""
        if stand_in or stage == "precision":
            return _STAND_IN
        return ("tensorrt", "cuda-python", *_STAND_IN)

    @property
    def can_stand_in(self) -> bool:
        """True: the graph for an engine can be checked in every precision."""
        return True

    def absent(self, why: str) -> tuple[str, Literal["warning", "note"]]:
        """Return the message for a target without an engine, and its severity."""
        return f"no engine was built: {why}", "warning"

    @property
    def verdict_without_device(self) -> Literal["judged", "foreseen"]:
        """The graph alone proves nothing about an engine."""
        return "foreseen"

    @classmethod
    def faults(
        cls, name: str, target: Mapping[str, object], recipe: Mapping[str, object]
    ) -> Iterator[RecipeFault]:
        """Return the axes' sizes that no optimization profile covers, and profiles of unknown
        axes.
        """
        return profile_faults(name, target, recipe)
