"""A TensorRT-RTX target as written in a recipe."""

from typing import Literal

from pydantic import Field

from convkit.host.recipe.keys.targets import Releases
from convkit.protocol.messages import StageKind
from convkit.protocol.same_fields import taken_from
from convkit.runtimes.tensorrt.target_engines import GRAPH_PACKAGES, PARSER_PACKAGES, EngineTarget
from convkit.runtimes.tensorrt_rtx.options import RtxOptions


class RtxTarget(EngineTarget):
    """A target served by TensorRT-RTX: an engine that is built on any machine."""

    runtime: Literal["tensorrt-rtx"] = Field(description="what runs the built model")
    compute_capabilities: tuple[Literal["sm75", "sm80", "sm86", "sm89", "sm120", "sm121"], ...] = (
        Field(
            (),
            description=(
                "the GPUs that the engine is built for, by compute capability; default: one"
                " portable engine for every GPU from Ampere on that the release supports"
            ),
            examples=[["sm89", "sm120"]],
        )
    )
    versions: Releases = Field(
        (),
        description="TensorRT-RTX releases that must all build the engine, as specifiers",
        examples=[["==1.4.*", "==1.7.*"]],
    )

    def options(self) -> RtxOptions:
        """Return the options that affect the engine."""
        named = tuple(dict.fromkeys(self.compute_capabilities))
        return taken_from(
            RtxOptions, self, profiles=self.sizes_of_profiles(), compute_capabilities=named
        )

    def packages(self, stage: StageKind, *, stand_in: bool) -> tuple[str, ...]:
        """Return a stage's packages: the library builds engines, and onnxruntime runs the graph."""
        if stage == "precision":
            return GRAPH_PACKAGES
        on_device = () if stand_in else ("cuda-python",)
        return (*PARSER_PACKAGES, *on_device, *GRAPH_PACKAGES)

    @property
    def one_release(self) -> tuple[str, ...]:
        """The bindings only load the libraries of their own release."""
        return PARSER_PACKAGES

    def absent(self, why: str) -> tuple[str, Literal["warning", "note"]]:
        """Return the message for a target whose engine was built and not run, and its severity."""
        return f"the engine was built and not run, its graph was simulated: {why}", "note"
