"""An onnxruntime target as written in a recipe."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from convkit.host.recipe.checks.names_axes_and_sizes import FaultsError, RecipeFault, mapping
from convkit.host.recipe.checks.padding_samples import padding_value
from convkit.host.recipe.keys.call_steps import (
    growing_axes,
    mask_name,
    resolve_feeds,
    tensors_by_name,
    tokens_of,
)
from convkit.host.recipe.keys.field_types import OPTION_PATTERN, ProviderOption, Switch
from convkit.host.recipe.keys.targets import GraphTarget, Processors, Releases, families_of
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import ProductFamily, QuantizationKind, StageKind
from convkit.protocol.same_fields import taken_from
from convkit.runtimes.onnxruntime.genai_layout import cache_layout, unknown_inputs
from convkit.runtimes.onnxruntime.options import OnnxRuntimeOptions

_REWRITING = ("onnx", "onnx-ir")
_GENAI = ("onnxruntime-genai",)
_GENERATED = 64


class OnnxRuntimeTarget(GraphTarget):
    """A target served by onnxruntime."""

    runtime: Literal["onnxruntime"] = Field(description="what runs the built model")
    device: Literal["cpu", "cuda"] = Field("cpu", description="where it runs")
    optimization: Literal["none", "basic", "extended", "all"] = Field(
        "all", description="onnxruntime's graph optimization level"
    )
    artifact: Literal["exported", "optimized"] = Field(
        "exported",
        description=(
            "optimized: the graph as onnxruntime optimized it, for this kind of machine, is built"
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

    package: Literal["genai"] | None = Field(
        None,
        description=(
            "genai: the folder that onnxruntime-genai loads, with genai_config.json and the"
            " tokenizer, whose own generation is verified"
        ),
    )

    shared_buffers: Switch = Field(
        default=False,
        description=(
            "with steps: run the model as an app does that passes one buffer as an input and as the"
            " output that feeds it (IO binding)"
        ),
    )

    processors: Processors = "any"

    @model_validator(mode="after")
    def _packageable(self) -> Self:
        if self.package is None:
            return self
        faults = []
        if self.device != "cpu":
            faults.append(
                RecipeFault(("package",), "genai is verified on the CPU; write device: cpu")
            )
        if self.artifact != "exported":
            faults.append(
                RecipeFault(("artifact",), "package: genai has the exported graph; remove it")
            )
        if self.versions:
            message = "onnxruntime-genai decides which onnxruntime it loads; remove it"
            faults.append(RecipeFault(("versions",), message))
        if faults:
            raise FaultsError(faults)
        return self

    @model_validator(mode="after")
    def _simulatable(self) -> Self:
        if self.low_precision is not None and self.artifact == "optimized":
            message = (
                f"a target in {self.low_precision.default} is verified by simulating the graph it"
                " is built from, and onnxruntime's optimized graphs have operators of its own;"
                " write artifact: exported"
            )
            raise FaultsError([RecipeFault(("artifact",), message)])
        return self

    @model_validator(mode="after")
    def _device_has_what_is_asked(self) -> Self:
        if self.device == "cuda":
            if self.processors != "any":
                message = "applies only with device: cpu; write that, or remove it"
                raise FaultsError([RecipeFault(("processors",), message)])
            return self
        faults = [
            RecipeFault((key,), "applies only with device: cuda; write that, or remove it")
            for key in ("provider", "provider_options", "tf32")
            if getattr(self, key)
        ]
        if faults:
            raise FaultsError(faults)
        return self

    @property
    def families(self) -> tuple[ProductFamily, ...]:
        """The families of processors that quantized products must be right on."""
        return families_of(self.processors) if self.device == "cpu" else ("exact",)

    def options(self) -> OnnxRuntimeOptions:
        """Return the session options."""
        if self.device == "cpu":
            return taken_from(
                OnnxRuntimeOptions, self, provider=None, provider_options={}, tf32=False
            )
        return taken_from(
            OnnxRuntimeOptions,
            self,
            provider=self.provider or "cuda",
            package=None,
            shared_buffers=False,
        )

    def packages(self, stage: StageKind, *, stand_in: bool) -> tuple[str, ...]:
        """Return a stage's packages; rewriting and simulating a graph require its libraries too."""
        runtime = "onnxruntime-gpu" if self.device == "cuda" and not stand_in else "onnxruntime"
        packaged = self.package is not None and stage == "verify"
        return (
            *(runtime, "numpy"),
            *(_REWRITING if self.rewrites or stand_in or stage == "precision" else ()),
            *(_GENAI if packaged else ()),
        )

    @classmethod
    def variants(cls) -> Iterator[dict[str, Json]]:
        """Return every precision on the CPU, and those that CUDA has kernels for."""
        for precision in ("float32", "float16"):
            yield {"precision": precision}
        for kind in get_args(QuantizationKind):
            yield {"precision": {"quantize": kind}}
        for precision in ("float32", "float16"):
            yield {"device": "cuda", "precision": precision}

    @classmethod
    def alternatives(
        cls, target: Mapping[str, Json], *, is_refused: bool
    ) -> Iterator[dict[str, Json]]:
        """Yield the lower levels of optimization for a model that is refused, the highest first:
        what is wrong has been computed at every level.
        """
        if not is_refused:
            return
        levels = ("none", "basic", "extended", "all")
        below = levels[: levels.index(str(target.get("optimization", "all")))]
        yield from ({"optimization": level} for level in reversed(below))

    @classmethod
    def refinements(cls, target: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
        """Return the next lower level of optimization, on the CPU the stored optimized graph, and
        with CUDA the other provider.
        """
        if target.get("package") is not None:
            return
        levels = ("none", "basic", "extended", "all")
        level = levels.index(str(target.get("optimization", "all")))
        if level > 0:
            yield {"optimization": levels[level - 1]}
        if target.get("device") == "cuda":
            yield {"provider": "cuda" if target.get("provider") == "tensorrt" else "tensorrt"}
        elif target.get("artifact", "exported") == "exported" and not target.get("versions"):
            yield {"artifact": "optimized"}

    @property
    def builds_with_reference(self) -> bool:
        """True if the build reads what the reference stage left."""
        return super().builds_with_reference or self.package is not None

    @property
    def generated_tokens(self) -> int:
        """How many tokens the original must generate, to compare those of a package with."""
        return _GENERATED if self.package is not None else 0

    @classmethod
    def faults(
        cls, name: str, target: Mapping[str, object], recipe: Mapping[str, object]
    ) -> Iterator[RecipeFault]:
        """Return why a package cannot hold the recipe's model, or no buffer can be shared."""
        if target.get("package") == "genai" and (why := _no_package(recipe)) is not None:
            yield RecipeFault(("targets", name, "package"), f"genai {why}")
        if target.get("shared_buffers") is True and (why := _nothing_shared(target, recipe)):
            yield RecipeFault(("targets", name, "shared_buffers"), why)

    @property
    def measures_in_build(self) -> bool:
        """True if onnxruntime optimizes the graph for this processor, or calibrates on it."""
        return super().measures_in_build or self.artifact == "optimized"


def _no_package(recipe: Mapping[str, object]) -> str | None:
    """Return why genai cannot run a recipe's model; None if it can, or if `steps` are wrong."""
    steps = mapping(recipe.get("steps"))
    if not isinstance(steps.get("greedy"), str):
        return "generates text: it needs steps: with greedy:, see docs/steps.md"
    inputs, outputs = (tensors_by_name(recipe, kind) for kind in ("inputs", "outputs"))
    given = {key: str(value) for key, value in mapping(steps.get("feeds")).items()}
    feeds, wrong = resolve_feeds(given, list(outputs), list(inputs))
    if wrong:
        return None  # reported by the checks of steps
    shapes = {each: tensor["shape"] for each, tensor in {**inputs, **outputs}.items()}
    layout = cache_layout(feeds, shapes)
    if isinstance(layout, str):
        return layout
    scores = shapes.get(str(steps["greedy"]), ())
    if scores and not isinstance(scores[-1], int):
        return f"needs a fixed number of tokens; {steps['greedy']!r} has {scores[-1]!r}"
    axis = steps.get("axis")
    if not growing_axes(feeds, shapes, axis if isinstance(axis, str) else None)[0]:
        return "needs caches that grow: past in the input, past + sequence in the output"
    positions = [each for each, tensor in inputs.items() if tensor.get("sample") == "positions"]
    mask = mask_name(inputs, axis)
    if mask is not None and padding_value(inputs[mask].get("sample")):
        return f"marks padding by 0; {mask!r} marks it by 1 (sample: key_padding_mask)"
    known = [tokens_of(inputs, axis), mask, *positions[:1]]
    return unknown_inputs(list(inputs), [*known, *(feed.input for feed in feeds)])


def _nothing_shared(target: Mapping[str, object], recipe: Mapping[str, object]) -> str | None:
    """Return why no input can share its buffer with an output; None if one can, or if `steps` are
    wrong.
    """
    if target.get("device", "cpu") != "cpu":
        return "shared buffers are verified on the CPU only; write device: cpu, or remove it"
    if not recipe.get("steps"):
        return "outputs share buffers with the inputs that they feed: write steps, or remove it"
    inputs, outputs = (tensors_by_name(recipe, kind) for kind in ("inputs", "outputs"))
    given = {
        key: str(value) for key, value in mapping(mapping(recipe["steps"]).get("feeds")).items()
    }
    feeds, wrong = resolve_feeds(given, list(outputs), list(inputs))
    if wrong or any(inputs[each.input]["shape"] == outputs[each.output]["shape"] for each in feeds):
        return None
    return (
        "every cache of steps grows, so no output fits its input's buffer; remove it, or give the"
        " model caches of a fixed size"
    )
