"""A Core AI target as written in a recipe."""

from collections.abc import Iterator, Mapping
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from convkit.host.recipe.checks.names_axes_and_sizes import FaultsError, RecipeFault, mapping
from convkit.host.recipe.keys.field_types import AXIS_PATTERN, RecipeModel, Switch
from convkit.host.recipe.keys.held_states import state_faults
from convkit.host.recipe.keys.precision import MixedPrecision, Precision, QuantizedPrecision
from convkit.host.recipe.keys.targets import BaseTarget, Releases
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import StageKind
from convkit.protocol.same_fields import taken_from
from convkit.runtimes.coreai.options import CompressionOptions, CoreAIOptions

_MAIN = "main"
_RUNNING = ("coreai-core", "numpy")
_CONVERTING = ("coreai-core", "coreai-torch", "torch", "numpy", "safetensors", "packaging")


class PackedWeights(RecipeModel):
    """How weights are stored. The arithmetic keeps the target's precision."""

    weights: Literal["int8", "int4"] = Field(
        description="int8: linear, a scale per channel; int4: linear, a scale per block"
    )
    block_size: Literal[16, 32, 64, 128] | None = Field(
        None, description="with int4: weights that share a scale; default 32"
    )

    @model_validator(mode="after")
    def _keys_fit(self) -> Self:
        if self.block_size is not None and self.weights != "int4":
            message = "requires weights: int4; add that, or remove this"
            raise FaultsError([RecipeFault(("block_size",), message)])
        return self


Sizes = dict[Annotated[str, Field(pattern=AXIS_PATTERN)], Annotated[int, Field(strict=True, ge=1)]]


class CoreAITarget(BaseTarget):
    """A target served by Core AI: a file converted from the model itself, executed on the CPU."""

    builds_from: ClassVar[Literal["graph", "model", "file"]] = "model"
    runtime_package: ClassVar[str] = "coreai-core"

    runtime: Literal["coreai"] = Field(description="what runs the built model")
    device: Literal["cpu"] = Field("cpu", description="where it runs")
    versions: Releases = Field(
        (), description="releases of coreai-core that must all run the same file, as specifiers"
    )
    decompose: tuple[Annotated[str, Field(pattern=AXIS_PATTERN)], ...] = Field(
        (),
        description=(
            "torch's operators that are written with simpler ones before Core AI converts them,"
            " because its own version computes something else"
        ),
        examples=[["scaled_dot_product_attention"]],
    )
    entry_points: dict[Annotated[str, Field(pattern=AXIS_PATTERN)], Sizes] = Field(
        default_factory=dict,
        description=(
            "further functions in the same file, by name: the model with these axes fixed, such as"
            " one token at a time. `main` has every size"
        ),
        examples=[{"decode": {"sequence": 1}}],
    )

    compression: PackedWeights | None = Field(
        None, description="weights in fewer bits, by coreai-opt", examples=[{"weights": "int8"}]
    )

    states: Switch = Field(
        default=False,
        description=(
            "true: what steps feeds back, such as a cache, stays in the model between calls; needs"
            " one size for it"
        ),
    )

    @field_validator("precision")
    @classmethod
    def _is_served(cls, precision: Precision) -> Precision:
        low = MixedPrecision.of(precision)
        if isinstance(precision, QuantizedPrecision):
            message = (
                f"{precision.quantize} is onnxruntime's; write compression: {{weights: int8}}, or"
                " serve the model with runtime: onnxruntime"
            )
            raise FaultsError([RecipeFault((), message)])
        if low is not None and low.default == "bfloat16":
            raise FaultsError(
                [RecipeFault((), "convkit converts to float16 for Core AI; write float16")]
            )
        return precision

    def options(self) -> CoreAIOptions:
        """Return the options that affect the file."""
        given = self.compression
        compression = None if given is None else taken_from(CompressionOptions, given)
        decompose = tuple(sorted(set(self.decompose)))
        return CoreAIOptions(decompose, dict(self.entry_points), compression, self.states)

    @classmethod
    def variants(cls) -> Iterator[dict[str, Json]]:
        """Return both types, and both compressions of float16 models."""
        for precision in ("float32", "float16"):
            yield {"precision": precision}
        for weights in ("int8", "int4"):
            yield {"precision": "float16", "compression": {"weights": weights}}

    @classmethod
    def drafts(cls) -> Iterator[tuple[str, dict[str, Json]]]:
        """Return both types, and compressed weights."""
        low: Json = {"default": "float16", "keep_float32": "auto"}
        yield "float32", {"precision": "float32"}
        yield "float16", {"precision": low}
        for weights in ("int8", "int4"):
            yield weights, {"precision": "float16", "compression": {"weights": weights}}

    @classmethod
    def looped(cls, axis: str) -> dict[str, Json]:
        """Return an entry point for single positions: both functions share the file's weights."""
        return {"entry_points": {"decode": {axis: 1}}}

    @property
    def builds_with_steps(self) -> bool:
        """True if the build must know which outputs feed which inputs."""
        return self.states

    @property
    def can_stand_in(self) -> bool:
        """False: without Core AI there is no file to judge."""
        return False

    def packages(self, stage: StageKind, *, stand_in: bool) -> tuple[str, ...]:
        """Return a stage's packages: running a file needs no torch, and only compression needs
        coreai-opt.
        """
        del stand_in
        if stage == "verify":
            return _RUNNING
        return (*_CONVERTING, "coreai-opt") if self.compression is not None else _CONVERTING

    @classmethod
    def faults(
        cls, name: str, target: Mapping[str, object], recipe: Mapping[str, object]
    ) -> Iterator[RecipeFault]:
        """Return requests that Core AI cannot fulfill: a graph, TorchScript, sizes that an axis
        does not have.
        """
        place = ("targets", name)
        for kind in ("onnx", "torchscript"):
            if mapping(recipe.get("model")).get(kind) is not None:
                message = (
                    f"coreai converts what torch.export traces, and the recipe has model.{kind};"
                    " name the torch module that it was made of under model"
                )
                yield RecipeFault((*place, "runtime"), message)
        if target.get("states") is True:
            yield from state_faults(place, recipe)
        axes = mapping(recipe.get("axes"))
        for entry, sizes in mapping(target.get("entry_points")).items():
            where = (*place, "entry_points", entry)
            if entry == _MAIN:
                yield RecipeFault(where, "main is the model with every size; choose another name")
            for axis, size in mapping(sizes).items():
                bounds = mapping(axes.get(axis))
                if not bounds:
                    known = ", ".join(map(str, axes)) or "none"
                    yield RecipeFault(
                        (*where, axis), f"is no axis of the recipe, which has {known}"
                    )
                elif isinstance(size, int) and not bounds["min"] <= size <= bounds["max"]:  # type: ignore[operator]
                    message = (
                        f"must be from axes.{axis}.min to max, {bounds['min']} to {bounds['max']}"
                    )
                    yield RecipeFault((*where, axis), message)
