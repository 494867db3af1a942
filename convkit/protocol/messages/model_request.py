"""The model, its inputs, and the precision in which a target computes it."""

import dataclasses
from typing import Literal, get_args

from convkit.protocol.contract import Dimension, DType
from convkit.protocol.json_codec import Json

SourceKind = Literal[
    "hub", "path", "package", "config", "factory", "onnx", "torchscript", "exported"
]
Exporter = Literal["torch", "optimum", "torchscript", "auto"]
Device = Literal["cpu", "cuda"]


@dataclasses.dataclass(frozen=True)
class Source:
    """The model to load. The relevant fields depend on `kind`.

    hub: `identifier` and `revision` (a commit) · path, package: `path` (a folder in transformers'
    layout) · config: `identifier` (an architecture such as `bert`), `seed`, `overrides` · factory:
    `path` (a Python file) and `identifier` (its callable), `overrides` (keyword arguments), `seed`
    · onnx, torchscript, exported: `path` (a file). `random`: fixed numbers take the place of
    random ones that an ONNX file draws.
    """

    kind: SourceKind
    path: str | None = None
    identifier: str | None = None
    revision: str | None = None
    seed: int = 0
    overrides: dict[str, Json] = dataclasses.field(default_factory=dict)
    task: str | None = None
    dtype: str | None = None
    attention: str | None = None
    allow_pickle: bool = False
    allow_remote_code: bool = False
    omit: tuple[str, ...] = ()
    random: Literal["fixed"] | None = None


@dataclasses.dataclass(frozen=True)
class Held:
    """A whole number with a meaning: how many elements have it, in even parts of the rows; about a
    quarter if `count` is None. No other elements have it.
    """

    value: int
    count: Dimension | None = None


@dataclasses.dataclass(frozen=True)
class Sample:
    """How values for one input are drawn.

    token_ids: whole numbers below the vocabulary's size · padding_mask: ones with the padding's
    zeros, or the reverse, or zeros with its number at padding · causal_mask: the same of pairs of
    positions, of which each sees itself and those before it · positions: 0, 1, 2, ... along the
    last axis · integers: low (included) to high (excluded) · one_of: one of these values, the same
    everywhere · normal: mean, standard deviation · uniform: low, high · columns: low, high of each
    element of the last axis · image, audio: what looks like one, from low to high · encoded_image:
    the bytes of a PNG file along the last axis · constant: one value · strings: any of these texts
    · lengths: how many elements of the dimension `along` each row uses, with a number if the
    longest uses all of them · offsets: at which of these elements each row begins · file: an .npy
    file, the array of an .npz file with the input's name, or an image's bytes. `held` are numbers
    with a meaning among integers.
    """

    kind: Literal[
        "token_ids",
        "padding_mask",
        "causal_mask",
        "positions",
        "integers",
        "normal",
        "uniform",
        "columns",
        "image",
        "audio",
        "encoded_image",
        "one_of",
        "constant",
        "strings",
        "lengths",
        "offsets",
        "file",
    ]
    numbers: tuple[float, ...] = ()
    strings: tuple[str, ...] = ()
    along: Dimension | None = None
    path: str | None = None
    held: tuple[Held, ...] = ()


@dataclasses.dataclass(frozen=True)
class Original:
    """The original model, for runtimes that convert it directly instead of its graph, and how to
    draw example inputs.
    """

    source: Source
    samples: dict[str, Sample]
    input_order: Literal["signature", "recipe"]


# The types that weights are rounded to.
LowType = Literal["float16", "bfloat16", "int8", "int4"]
LOW_TYPES: tuple[LowType, ...] = get_args(LowType)


@dataclasses.dataclass(frozen=True)
class LowPrecision:
    """A precision below float32: see `MixedPrecision` of the recipe.

    `keep_float32` is `auto` until the precision stage has determined the modules.
    """

    default: DType
    keep_float32: tuple[str, ...] | Literal["auto"] = ()
    saturate: bool = False

    @property
    def patterns(self) -> tuple[str, ...]:
        """Modules that stay in float32; empty until the precision stage determines them."""
        return () if self.keep_float32 == "auto" else self.keep_float32

    def keeping(self, patterns: tuple[str, ...]) -> "LowPrecision":
        """Return a copy that keeps these modules in float32 instead."""
        return dataclasses.replace(self, keep_float32=patterns)


# The cases of the ladder, in the order in which they run and are reported.
CaseName = Literal[
    "example",
    "smallest",
    "typical",
    "padded",
    "ragged",
    "largest",
    "masked-row",
    "off-typical",
    "mask-patterns",
    "batch",
    "sizes",
    "values",
    "decisions",
    "plain-rows",
    "sweep",
    "texts",
    "files",
    "extreme",
]
# All cases, or those that reveal the most common mistakes in a fraction of the time.
Ladder = Literal["full", "quick"]
QuantizationKind = Literal["dynamic-int8", "static-int8", "int4-weights"]
Format = Literal["qdq", "operators"]
Method = Literal["minmax", "entropy", "percentile"]

DEFAULT_PERCENTILE = 99.99
DEFAULT_BLOCK_SIZE = 32


@dataclasses.dataclass(frozen=True)
class Calibration:
    """How activation ranges are determined. `file` is an .npz file; None uses the verification
    cases.
    """

    method: Method = "minmax"
    percentile: float | None = None
    file: str | None = None


# How a processor sums products of unsigned and signed 8-bit numbers: in 32 bits, or pairs of them
# clipped to 16 bits (see `convkit.worker.graph.integer_products.processor_families`).
ProductFamily = Literal["exact", "saturating-pairs"]
PRODUCT_FAMILIES: tuple[ProductFamily, ...] = get_args(ProductFamily)


@dataclasses.dataclass(frozen=True)
class Quantization:
    """Weights, and with int8 also activations, as integers with a scale: see `QuantizedPrecision`
    of the recipe.

    `keep_float32` is `auto` until a plan exists. `reduce_range` uses seven bits per weight instead
    of eight, so that 16-bit sums of two products cannot saturate on any processor; None until it is
    measured whether they do. `equalize` makes channels that share a scale alike; None until it is
    known whether that is of use. `symmetric`: zero points are 0 and biases stay in float32, as some
    runtimes require.
    """

    quantize: QuantizationKind
    keep_float32: tuple[str, ...] | Literal["auto"] = ()
    per_channel: bool = True
    format: Format | None = None
    calibration: Calibration | None = None
    block_size: int | None = None
    reduce_range: bool | None = False
    equalize: bool | None = False
    symmetric: bool = False

    @property
    def patterns(self) -> tuple[str, ...]:
        """Modules to keep in float32; empty until a plan determines them."""
        return () if self.keep_float32 == "auto" else self.keep_float32

    @property
    def uses_qdq(self) -> bool:
        """True for QuantizeLinear and DequantizeLinear around float operators."""
        return self.format == "qdq" or (self.format is None and self.quantize == "static-int8")

    @property
    def calibrated(self) -> Calibration:
        """The calibration settings, with defaults filled in."""
        return self.calibration or Calibration()

    def keeping(self, patterns: tuple[str, ...]) -> "Quantization":
        """Return a copy that keeps these modules in float32 instead."""
        return dataclasses.replace(self, keep_float32=patterns)


# None is float32.
Precision = LowPrecision | Quantization | None


def low_type_of(precision: Precision) -> LowType | None:
    """Return the type with the coarsest steps that a precision computes in; None for float32."""
    if isinstance(precision, Quantization):
        return "int4" if "int4" in precision.quantize else "int8"
    if precision is None or precision.default not in LOW_TYPES:
        return None
    return precision.default
