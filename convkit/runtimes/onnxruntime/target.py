"""An onnxruntime target as written in a recipe."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from convkit.recipe.consistency import Fault, FaultsError
from convkit.recipe.fields import OPTION_PATTERN, ProviderOption
from convkit.recipe.targets import GraphTarget, Releases
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions
from convkit.worker.protocol import StageKind

_REWRITING = ("onnx", "onnx-ir")


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
    versions: Releases = Field(
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

    def options(self) -> OnnxRuntimeOptions:
        """Return the session options."""
        if self.device == "cpu":
            return OnnxRuntimeOptions(self.optimization, self.artifact)
        return OnnxRuntimeOptions(
            self.optimization,
            self.artifact,
            self.provider or "cuda",
            dict(self.provider_options),
            self.tf32,
        )

    def packages(self, stage: StageKind, *, stand_in: bool) -> tuple[str, ...]:
        """Return a stage's packages; rewriting and simulating a graph require its libraries too."""
        runtime = "onnxruntime-gpu" if self.device == "cuda" and not stand_in else "onnxruntime"
        return (runtime, "numpy", *(_REWRITING if self.rewrites or stage == "precision" else ()))

    @property
    def measures_in_build(self) -> bool:
        """True if onnxruntime optimizes the graph for this processor, or calibrates on it."""
        return super().measures_in_build or self.artifact == "optimized"
