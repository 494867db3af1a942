"""The keys that all targets share, and the interface between targets and host. Each runtime's
folder defines its own target.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from packaging.specifiers import SpecifierSet
from pydantic import AfterValidator, Field

from convkit.host.recipe.checks.names_axes_and_sizes import FaultsError, RecipeFault
from convkit.host.recipe.keys.bench import Goals
from convkit.host.recipe.keys.field_types import NonNegative, RecipeModel, Specifier, Switch
from convkit.host.recipe.keys.overridable_settings import Export, Tolerance, Tools
from convkit.host.recipe.keys.precision import MixedPrecision, Precision, QuantizedPrecision
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import (
    PRODUCT_FAMILIES,
    Device,
    ProductFamily,
    Quantization,
    StageKind,
)
from convkit.protocol.messages import Precision as WorkerPrecision

# Locates a file named in the recipe: returns a path for a worker, a digest for a key.
Places = Callable[[str], str]


def _each_once(versions: tuple[str, ...]) -> tuple[str, ...]:
    plain = [str(SpecifierSet(version)) for version in versions]
    faults = [
        RecipeFault((i,), f"{versions[i]!r} is already in this list; remove it")
        for i, version in enumerate(plain)
        if version in plain[:i]
    ]
    if faults:
        raise FaultsError(faults)
    return versions


# Releases of a runtime that must all serve the same artifact.
Releases = Annotated[tuple[Specifier, ...], AfterValidator(_each_once)]


# Which kinds of CPU must give right results with 8-bit products.
Processors = Annotated[
    Literal["any", "exact", "saturating-pairs"],
    Field(
        description=(
            "which CPUs must give right results with 8-bit products. exact: those with VNNI, AMX or"
            " ARM's dot products. saturating-pairs: x86 with AVX2 and without VNNI, which clip sums"
            " of two products to 16 bits. any: both"
        )
    ),
]


def families_of(processors: Processors) -> tuple[ProductFamily, ...]:
    """Return the families of processors that a recipe's value stands for."""
    return PRODUCT_FAMILIES if processors == "any" else (processors,)


class BaseTarget(RecipeModel):
    """A target. `builds_from` is what it is converted from: the exported graph, the model itself,
    or a file that somebody else built, which is only verified.
    A machine lacks the runtime if it lacks the package `runtime_package`.
    """

    builds_from: ClassVar[Literal["graph", "model", "file"]] = "graph"
    runtime_package: ClassVar[str | None] = None

    runtime: str

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
    max_drop: NonNegative | None = Field(None, description="in place of evaluate.max_drop")
    max_rise: NonNegative | None = Field(None, description="in place of evaluate.max_rise")
    goals: Goals | None = Field(None, description="in place of the recipe's goals")
    tools: Tools = Field(default_factory=Tools, description="over the recipe's tools")

    @property
    def low_precision(self) -> MixedPrecision | None:
        """The low precision with its exceptions; None for float32 and for quantization."""
        return MixedPrecision.of(self.precision)

    @property
    def quantization(self) -> QuantizedPrecision | None:
        """The target's quantization; None if it is not quantized."""
        return self.precision if isinstance(self.precision, QuantizedPrecision) else None

    @property
    def searches_precision(self) -> bool:
        """True if convkit is to find what stays in float32."""
        chosen = self.low_precision or self.quantization
        return chosen is not None and chosen.is_auto

    @property
    def plans_precision(self) -> bool:
        """True if there is a precision stage: ranges are measured, or something is decided."""
        return self.low_precision is not None or self.searches_precision or self.chooses_bits

    @property
    def chooses_bits(self) -> bool:
        """True if it is measured whether weights have eight bits or seven."""
        chosen = self.quantization
        may_saturate = chosen is not None and chosen.quantize != "int4-weights"
        return (
            may_saturate
            and chosen is not None
            and chosen.reduce_range == "auto"
            and "saturating-pairs" in self.families
        )

    @property
    def families(self) -> tuple[ProductFamily, ...]:
        """The families of processors that quantized products must be right on: one, where the
        device is no CPU, or the runtime does not show how it multiplies.
        """
        return ("exact",)

    if TYPE_CHECKING:
        # A key for some runtimes' targets, fixed for others. A property, because pydantic does not
        # allow a field to override it.
        @property
        def device(self) -> Device:
            """Where the target runs."""

        @property
        def versions(self) -> tuple[str, ...]:
            """Releases of the runtime that must all run the same artifact, as specifiers."""

    @abstractmethod
    def options(self) -> object:
        """Return the runtime's own options in the workers' form: a frozen dataclass."""

    @abstractmethod
    def packages(self, stage: StageKind, *, stand_in: bool) -> tuple[str, ...]:
        """Return the packages that one of the target's stages imports, the runtime's own first."""

    @property
    def one_release(self) -> tuple[str, ...]:
        """Packages that always have one release: what selects the first one's selects all."""
        return ()

    def worker_precision(self, place: Places) -> WorkerPrecision:
        """Return the precision in the workers' form; None is float32."""
        chosen = self.low_precision or self.quantization
        found = None if chosen is None else chosen.for_worker(place)
        if isinstance(found, Quantization) and self.chooses_bits:
            return replace(found, reduce_range=None)
        return found

    @property
    def export_settings(self) -> Export | None:
        """The target's own export settings, which replace the recipe's; None if it has none."""
        return None

    @property
    def files(self) -> tuple[str, ...]:
        """The files that the target refers to, as written in the recipe."""
        quantized = self.quantization
        calibration = quantized.calibration if quantized is not None else None
        return (calibration.file,) if calibration is not None and calibration.file else ()

    @property
    def fallback_packages(self) -> tuple[str, ...]:
        """What a build from the graph needs besides to convert the model itself, if the runtime
        refuses the graph; nothing if it does not try.
        """
        return ()

    @classmethod
    def variants(cls) -> Iterator[dict[str, Json]]:
        """Return the targets that `convkit tune` tries first, as a recipe has them, without
        `runtime`. Those that a recipe or this machine cannot have are left out.
        """
        return iter(())

    @classmethod
    def refinements(cls, target: Mapping[str, Json]) -> Iterator[dict[str, Json]]:
        """Return what `convkit tune` tries next of a target that proved good: other values of keys
        that change neither its precision nor its device.
        """
        del target
        return iter(())

    @classmethod
    def drafts(cls) -> Iterator[tuple[str, dict[str, Json]]]:
        """Return the targets that `convkit init --target` can write, without `runtime`, each with
        what follows the runtime's name: `float16`, `dynamic-int8`, `float32-cuda`.
        """
        for variant in cls.variants():
            precision = variant["precision"]
            kind = precision["quantize"] if isinstance(precision, dict) else precision
            device = variant.get("device", "cpu")
            if not isinstance(precision, dict) and precision != "float32":
                precision = {"default": precision, "keep_float32": "auto"}
            elif kind.endswith("int8"):
                precision = {"quantize": kind, "keep_float32": "auto"}
            words = f"{kind}" if device == "cpu" else f"{kind}-{device}"
            yield words, variant | {"precision": precision}

    @classmethod
    def looped(cls, axis: str) -> dict[str, Json]:
        """Return what a draft has besides for a model that is called in a loop, one position of an
        axis at a time.
        """
        del axis
        return {}

    @property
    def given(self) -> tuple[str, ...]:
        """The files of a model that somebody else built, as written in the recipe."""
        return ()

    def damage(self, file: Path) -> str | None:
        """Return what is visibly wrong with a file of this runtime's format; None if nothing is."""
        del file
        return None

    @property
    def calibrates_with_cases(self) -> bool:
        """True if the build reads the reference's cases."""
        chosen = self.quantization
        reads = chosen is not None and (chosen.quantize == "static-int8" or chosen.may_equalize)
        return reads and not self.files

    @property
    def builds_with_reference(self) -> bool:
        """True if the build reads what the reference stage left."""
        return self.calibrates_with_cases

    @property
    def generated_tokens(self) -> int:
        """How many tokens the original must generate, to compare those of a package with."""
        return 0

    @property
    def builds_with_steps(self) -> bool:
        """True if the build must know which outputs feed which inputs."""
        return self.generated_tokens > 0

    @property
    def rewrites(self) -> bool:
        """True if the exported graph is rewritten in another precision before the build."""
        return self.low_precision is not None or self.quantization is not None

    @property
    def measures_in_build(self) -> bool:
        """True if the build's output depends on this machine's processor."""
        return self.quantization is not None

    @property
    def can_stand_in(self) -> bool:
        """True if a simulation on the CPU can replace an absent device."""
        return self.low_precision is not None

    def absent(self, why: str) -> tuple[str, Literal["warning", "note"]]:
        """Return the message for a target that was simulated instead, and its severity."""
        return f"{why}: judged by simulation", "note"

    @property
    def verdict_without_device(self) -> Literal["judged", "foreseen"]:
        """What a simulation proves without the device: the target itself, or only its graph."""
        return "judged"

    @classmethod
    def alternatives(
        cls, target: Mapping[str, Json], *, is_refused: bool
    ) -> Iterator[dict[str, Json]]:
        """Yield other ways through the same runtime, as changes of the target, which are tried if
        it refuses a model or computes it wrong; the least change first.
        """
        del target, is_refused
        return iter(())

    @classmethod
    def faults(
        cls, name: str, target: Mapping[str, object], recipe: Mapping[str, object]
    ) -> Iterator[RecipeFault]:
        """Return the inconsistencies between the target and the rest of its recipe, both as plain
        values.
        """
        del name, target, recipe
        return iter(())


class GraphTarget(BaseTarget):
    """A target that is built from the exported graph."""

    export: Export | None = Field(None, description="in place of the recipe's export")
    tf32: Switch = Field(
        default=False,
        description=(
            "true: float32 products may be computed with ten bits of mantissa on NVIDIA's tensor"
            " cores"
        ),
    )

    @property
    def export_settings(self) -> Export | None:
        """The target's own export settings, which replace the recipe's; None if it has none."""
        return self.export
