"""An OpenVINO target as written in a recipe."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from convkit.host.recipe.checks.names_axes_and_sizes import FaultsError, RecipeFault, mapping
from convkit.host.recipe.keys.field_types import OPTION_PATTERN, ProviderOption
from convkit.host.recipe.keys.precision import Precision, QuantizedPrecision
from convkit.host.recipe.keys.targets import GraphTarget, Processors, Releases, families_of
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import ProductFamily, StageKind
from convkit.runtimes.openvino.options import RESERVED, OpenVINOOptions

_REWRITING = ("onnx", "onnx-ir")
# OpenVINO reads torch programs with `packaging`, which it does not require.
_CONVERTING = ("torch", "safetensors", "packaging")
# onnxruntime, not the runtime under test, measures ranges and simulates low precision.
_SIMULATING = ("onnxruntime", *_REWRITING)


class OpenVINOTarget(GraphTarget):
    """A target served by OpenVINO on the CPU."""

    runtime_package: ClassVar[str] = "openvino"

    runtime: Literal["openvino"] = Field(description="what runs the built model")
    device: Literal["cpu"] = Field("cpu", description="where it runs")
    versions: Releases = Field(
        (),
        description="OpenVINO releases that must all serve the same artifact, as specifiers",
        examples=[["==2025.4.*", "==2026.4.*"]],
    )
    source: Literal["auto", "onnx", "torch"] = Field(
        "auto",
        description=(
            "what is converted. onnx: the exported graph. torch: the model itself, by OpenVINO's"
            " PyTorch front end, in float32. auto: the model itself, if OpenVINO refuses the graph"
            " or fails to run it"
        ),
    )
    plugin_properties: dict[Annotated[str, Field(pattern=OPTION_PATTERN)], ProviderOption] = Field(
        default_factory=dict,
        description="the CPU plugin's own properties",
        examples=[{"CPU_DENORMALS_OPTIMIZATION": True}],
    )

    processors: Processors = "any"

    @field_validator("precision")
    @classmethod
    def _is_served(cls, precision: Precision) -> Precision:
        if not isinstance(precision, QuantizedPrecision):
            return precision
        if precision.quantize != "static-int8":
            message = (
                f"{precision.quantize} is not available for OpenVINO; write static-int8, or serve"
                " the model with runtime: onnxruntime"
            )
            raise FaultsError([RecipeFault(("quantize",), message)])
        if precision.format == "operators":
            message = (
                "OpenVINO reads quantization from QuantizeLinear and DequantizeLinear; write"
                " format: qdq, or remove it"
            )
            raise FaultsError([RecipeFault(("format",), message)])
        return precision

    @field_validator("plugin_properties")
    @classmethod
    def _are_free(cls, plugin_properties: dict[str, object]) -> dict[str, object]:
        faults = [
            RecipeFault((name,), "convkit sets this property itself, from the precision; remove it")
            for name in plugin_properties
            if name in RESERVED
        ]
        if faults:
            raise FaultsError(faults)
        return plugin_properties

    @model_validator(mode="after")
    def _has_no_tensor_cores(self) -> Self:
        if self.tf32:
            message = "applies to NVIDIA GPUs only, and this target runs on the CPU; remove it"
            raise FaultsError([RecipeFault(("tf32",), message)])
        return self

    @model_validator(mode="after")
    def _module_is_float32(self) -> Self:
        if self.source == "torch" and self.rewrites:
            message = (
                "lower precision is built from the exported graph; write source: onnx, or"
                " precision: float32"
            )
            raise FaultsError([RecipeFault(("source",), message)])
        return self

    @classmethod
    def faults(
        cls, name: str, target: Mapping[str, object], recipe: Mapping[str, object]
    ) -> Iterator[RecipeFault]:
        """Return requests for a torch module that the recipe does not have."""
        model = mapping(recipe.get("model"))
        for kind in ("onnx", "torchscript"):
            if target.get("source") == "torch" and model.get(kind) is not None:
                message = (
                    f"converts a torch module, and the recipe has model.{kind}; write source: onnx,"
                    " or name the module under model"
                )
                yield RecipeFault(("targets", name, "source"), message)

    @classmethod
    def alternatives(
        cls, target: Mapping[str, Json], *, is_refused: bool
    ) -> Iterator[dict[str, Json]]:
        """Yield the other source: the model itself in place of its graph, or the graph."""
        del is_refused
        if target.get("source", "auto") != "torch":
            yield {"source": "torch"}
        else:
            yield {"source": "onnx"}

    @property
    def builds_from(self) -> Literal["graph", "model"]:  # type: ignore[override]  # as the recipe says
        """What is converted first."""
        return "model" if self.source == "torch" else "graph"

    @property
    def fallback_packages(self) -> tuple[str, ...]:
        """What the build needs to convert the model itself if OpenVINO refuses the graph."""
        return _CONVERTING if self.source == "auto" and not self.rewrites else ()

    @classmethod
    def variants(cls) -> Iterator[dict[str, Json]]:
        """Return every precision that the CPU plugin serves."""
        for precision in ("float32", "float16", "bfloat16"):
            yield {"precision": precision}
        yield {"precision": {"quantize": "static-int8"}}

    @property
    def families(self) -> tuple[ProductFamily, ...]:
        """The families of processors that quantized products must be right on."""
        return families_of(self.processors)

    def options(self) -> OpenVINOOptions:
        """Return the session options."""
        return OpenVINOOptions(dict(self.plugin_properties))

    def packages(self, stage: StageKind, *, stand_in: bool) -> tuple[str, ...]:
        """Return a stage's packages; only rewriting and simulating need more than OpenVINO."""
        del stand_in  # without OpenVINO there is no IR, so nothing can be simulated instead
        if stage == "precision":
            return (*_SIMULATING, "numpy")
        own = ("openvino", "numpy")
        if self.source == "torch":
            return (*own, *(_CONVERTING if stage == "build" else ()))
        if self.quantization is not None or (self.rewrites and stage == "verify"):
            return (*own, *_SIMULATING)
        if self.rewrites:
            return (*own, *_REWRITING)
        # A graph may already be in low precision, which the recipe does not reveal.
        return (*own, "onnxruntime") if stage == "verify" else own

    @property
    def can_stand_in(self) -> bool:
        """False: a simulation of the graph proves nothing about an IR that was never built."""
        return False
