"""The targets: a runtime, a device, a precision and a tolerance each."""

from typing import Annotated, Literal, Self

from packaging.specifiers import SpecifierSet
from pydantic import Field, field_validator, model_validator

from convkit.recipe.compression import Compression
from convkit.recipe.consistency import Fault, FaultsError
from convkit.recipe.fields import (
    OPTION_PATTERN,
    AxisName,
    ProviderOption,
    RecipeModel,
    Specifier,
    Switch,
)
from convkit.recipe.precision import MixedPrecision, Precision, QuantizedPrecision
from convkit.recipe.settings import Axis, Export, Tolerance, Tools


class _Target(RecipeModel):
    """What every target says."""

    precision: Precision = Field(
        "float32",
        description="element type of the weights and the arithmetic",
        examples=[
            "float16",
            {"default": "float16", "keep_float32": ["encoder.layer.*.attention"]},
            {"quantize": "dynamic-int8"},
        ],
    )
    tolerance: Tolerance | None = Field(None, description="in place of verify.tolerance")
    outputs: dict[str, Tolerance] = Field(
        default_factory=dict, description="tolerances by output, in place of all others"
    )
    tools: Tools = Field(default_factory=Tools, description="over the recipe's tools")

    @property
    def low_precision(self) -> MixedPrecision | None:
        """The low precision with its exceptions; None for float32 and for quantisation."""
        return MixedPrecision.of(self.precision)

    @property
    def quantization(self) -> QuantizedPrecision | None:
        """How the target is quantised; None where it is not."""
        return self.precision if isinstance(self.precision, QuantizedPrecision) else None

    @property
    def searches_precision(self) -> bool:
        """True where convkit is to find what stays in float32."""
        chosen = self.low_precision or self.quantization
        return chosen is not None and chosen.is_auto

    @property
    def plans_precision(self) -> bool:
        """True where the precision is looked at before anything is built: ranges are measured, or
        it is searched.
        """
        return self.low_precision is not None or self.searches_precision


class GraphTarget(_Target):
    """A target that is built from the exported graph."""

    export: Export | None = Field(None, description="in place of the recipe's export")
    tf32: Switch = Field(
        default=False,
        description=(
            "true: float32 products may be computed with ten bits of mantissa on NVIDIA's tensor"
            " cores"
        ),
    )


class OnnxRuntimeTarget(GraphTarget):
    """A target served by onnxruntime."""

    runtime: Literal["onnxruntime"] = Field(description="what runs the built model")
    device: Literal["cpu", "cuda"] = Field("cpu", description="where it runs")
    optimization: Literal["none", "basic", "extended", "all"] = Field(
        "all", description="onnxruntime's graph optimisation level"
    )
    artifact: Literal["exported", "optimized"] = Field(
        "exported",
        description=(
            "optimized: the graph as onnxruntime optimised it, for this kind of machine, is built"
        ),
    )
    versions: tuple[Specifier, ...] = Field(
        (),
        description="onnxruntime releases that must all serve the same artifact, as specifiers",
        examples=[["==1.21.*", "==1.31.*"]],
    )
    provider: Literal["cuda", "tensorrt"] | None = Field(
        None,
        description="with device: cuda, which of onnxruntime's providers serves it; default cuda",
    )
    provider_options: dict[Annotated[str, Field(pattern=OPTION_PATTERN)], ProviderOption] = Field(
        default_factory=dict,
        description="the provider's own options",
        examples=[{"cudnn_conv_algo_search": "HEURISTIC"}],
    )

    @field_validator("versions")
    @classmethod
    def _each_once(cls, versions: tuple[str, ...]) -> tuple[str, ...]:
        plain = [str(SpecifierSet(version)) for version in versions]
        faults = [
            Fault((i,), f"{versions[i]!r} stands in this list already; remove it")
            for i, version in enumerate(plain)
            if version in plain[:i]
        ]
        if faults:
            raise FaultsError(faults)
        return versions

    @model_validator(mode="after")
    def _simulatable(self) -> Self:
        if self.low_precision is not None and self.artifact == "optimized":
            message = (
                f"a target in {self.low_precision.default} is verified by simulating the graph it"
                " is built from, and onnxruntime's optimised graphs have operators of its own;"
                " write artifact: exported"
            )
            raise FaultsError([Fault(("artifact",), message)])
        return self

    @model_validator(mode="after")
    def _device_has_what_is_asked(self) -> Self:
        if self.device == "cuda":
            return self
        faults = [
            Fault((key,), "means something with device: cuda only; write that, or remove it")
            for key in ("provider", "provider_options", "tf32")
            if getattr(self, key)
        ]
        if faults:
            raise FaultsError(faults)
        return self


class Dla(RecipeModel):
    """A deep learning accelerator beside the GPU, as on Jetson."""

    core: Annotated[int, Field(strict=True, ge=0, le=7)] = Field(description="which one, from 0")
    fallback: Switch = Field(default=True, description="layers that it has not run on the GPU")


class TensorRTTarget(GraphTarget):
    """A target served by TensorRT, 10 or 11: an engine, strongly typed, built for one kind of GPU."""

    runtime: Literal["tensorrt"] = Field(description="what runs the built model")
    profiles: tuple[dict[AxisName, Axis], ...] = Field(
        (),
        description=(
            "optimisation profiles: the sizes of axes that each is tuned for, the others as under"
            " axes; default: one, with the sizes of axes"
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
        description=(
            "most memory that a layer may use beside its tensors, in GiB; default: all there is"
        ),
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
        None, description="the accelerator to build for, beside the GPU", examples=[{"core": 0}]
    )

    @field_validator("precision")
    @classmethod
    def _is_served(cls, precision: Precision) -> Precision:
        if not isinstance(precision, QuantizedPrecision):
            return precision
        if precision.quantize == "dynamic-int8":
            message = (
                "dynamic-int8 is onnxruntime's; TensorRT takes static-int8, or int4-weights with"
                " format: qdq"
            )
            raise FaultsError([Fault(("quantize",), message)])
        if precision.format == "operators" or (
            precision.quantize == "int4-weights" and precision.format is None
        ):
            message = (
                "TensorRT reads quantisation from QuantizeLinear and DequantizeLinear; write"
                " format: qdq"
            )
            raise FaultsError([Fault(("format",), message)])
        return precision

    @property
    def device(self) -> Literal["cuda"]:
        """Where engines are built and run."""
        return "cuda"

    @property
    def versions(self) -> tuple[str, ...]:
        """No further releases: an engine belongs to the one that built it."""
        return ()


# The oldest systems that run an ML program, and the newer ones that give programs more operations.
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


class CoreMLTarget(_Target):
    """A target served by Core ML: an ML program, converted from the model itself."""

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

    @field_validator("precision")
    @classmethod
    def _is_served(cls, precision: Precision) -> Precision:
        low = MixedPrecision.of(precision)
        if isinstance(precision, QuantizedPrecision):
            message = (
                f"{precision.quantize} is onnxruntime's; write compression: {{weights: int8}}"
                " beside precision"
            )
            raise FaultsError([Fault((), message)])
        if low is not None and low.default == "bfloat16":
            raise FaultsError([Fault((), "Core ML has no bfloat16; write float16")])
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
            raise FaultsError([Fault(("minimum",), message)])
        return self

    @property
    def device(self) -> Literal["cpu"]:
        """Where the target is checked: ML programs are evaluated on the CPU, and predicted there on
        macOS.
        """
        return "cpu"

    @property
    def versions(self) -> tuple[str, ...]:
        """No releases of a runtime: Core ML belongs to the system."""
        return ()


# By how much a system's release lags behind the iOS of the same year.
_BEHIND_IOS = {"iOS": 0, "macOS": 3, "watchOS": 7, "tvOS": 0, "visionOS": 16}


def _generation(target: str) -> int:
    """Return the release of iOS that came out with a deployment target."""
    system = target.rstrip("0123456789")
    return int(target.removeprefix(system)) + _BEHIND_IOS[system]


# One runtime more: one more target model, here.
Target = Annotated[
    OnnxRuntimeTarget | TensorRTTarget | CoreMLTarget, Field(discriminator="runtime")
]
