"""One request type per job. Requests contain paths; a stage's key replaces them with digests."""

import dataclasses
from typing import Generic, Literal, TypeVar

from convkit.protocol.contract import Contract
from convkit.protocol.json_codec import Json
from convkit.protocol.messages.call_steps import Steps
from convkit.protocol.messages.evaluation import Evaluation
from convkit.protocol.messages.joined_parts import JoinedOriginals, JoinRequest
from convkit.protocol.messages.model_request import (
    PRODUCT_FAMILIES,
    Device,
    Exporter,
    Ladder,
    LowPrecision,
    LowType,
    Original,
    Precision,
    ProductFamily,
    Sample,
    Source,
)
from convkit.protocol.messages.processors import PreparedInput, Processor

# The runtime's own options: a frozen dataclass defined in its folder.
OptionsT = TypeVar("OptionsT")


@dataclasses.dataclass(frozen=True)
class ExportRequest:
    """Model -> contract-checked ONNX (`model.onnx` and `model.onnx.data`).

    `opset` 0: an ONNX file keeps its own. `may_fall_back`: nobody chose the exporter, so where it
    fails, another whose graph is proven to be right may take its place.
    """

    source: Source
    contract: Contract
    samples: dict[str, Sample]
    exporter: Exporter
    opset: int
    input_order: Literal["signature", "recipe"]
    may_fall_back: bool = False


@dataclasses.dataclass(frozen=True)
class EarlierCases:
    """A reference of the same original, from which outputs are taken for inputs that are the same
    to the byte. `folder` is its artifact; `seconds` are the times of the cases that may be used, by
    name.
    """

    folder: str
    seconds: dict[str, float]


@dataclasses.dataclass(frozen=True)
class ReferenceRequest:
    """The original model on every case: `cases.json`, `<case>/inputs/<name>.npy`,
    `<case>/outputs/<name>.npy`.

    `graph` is an ONNX file that was made elsewhere, whose comparisons cases are made for too. For
    the `quick` ladder, nothing is searched for comparisons. `evaluation`: the original also runs on
    the user's rows. `joined`: the model has several parts. Their originals, joined, must give
    what the `source` gives; without a source, they are the original. `prepared`: inputs that the
    original's own processor makes of files; `processed`: its own postprocessor, by output.
    `example` is an .npz file with the inputs of one call, a case of its own. `rounded`: the types
    that the original's weights and inputs are also rounded to. `earlier` saves time and is not part
    of the key.
    """

    source: Source | None
    contract: Contract
    samples: dict[str, Sample]
    seed: int
    texts: tuple[str, ...]
    budget_seconds: float | None
    skip_cases: tuple[str, ...]
    graph: str | None = None
    steps: Steps | None = None
    ladder: Ladder = "full"
    evaluation: Evaluation | None = None
    joined: JoinedOriginals | None = None
    prepared: dict[str, PreparedInput] = dataclasses.field(default_factory=dict)
    processed: dict[str, Processor] = dataclasses.field(default_factory=dict)
    example: str | None = None
    rounded: tuple[LowType, ...] = ()
    earlier: EarlierCases | None = None


@dataclasses.dataclass(frozen=True)
class PrecisionRequest(Generic[OptionsT]):
    """Resolve a target's precision for a model before anything is built.

    `exported` is the folder of the exported graph, `original` the model itself; a runtime converts
    one of them. `reference` is the folder of the cases. `limits` are the tolerances by output, used
    for `keep_float32: auto`, in the worst of `families`; `device` is where the target will run.
    `clipped` are kinds of cases with values beyond what a quantization is calibrated for, in which
    any error is allowed. `derived` are the outputs whose limits follow from the type.
    """

    contract: Contract
    options: OptionsT
    precision: Precision
    reference: str
    limits: dict[str, dict[str, float]]
    exported: str | None = None
    original: Original | None = None
    families: tuple[ProductFamily, ...] = PRODUCT_FAMILIES
    device: Device = "cpu"
    clipped: tuple[str, ...] = ()
    derived: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class BuildRequest(Generic[OptionsT]):
    """Build the target's files from the exported graph or the model itself.

    `exported` and `original` are as in `PrecisionRequest`. `decision` is the precision stage's
    folder, `reference` the folder of the cases, for builds that calibrate with them. `stand_in`:
    the device is absent and is simulated on the CPU. `caches` is a folder of measurements from
    earlier builds, which this build may read and update; it is not part of the key. `given` are the
    files of a model that somebody else built, which is taken over as it is.
    """

    contract: Contract
    options: OptionsT
    precision: Precision
    device: Device
    exported: str | None = None
    original: Original | None = None
    decision: str | None = None
    reference: str | None = None
    stand_in: bool = False
    caches: str | None = None
    steps: Steps | None = None
    given: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class VerifyRequest(Generic[OptionsT]):
    """Run the built model on every case and measure it against the reference. The host decides the
    verdict.

    `exported` is the graph that a low-precision target was built from, `decision` its precision
    stage's folder. `stand_in` is as in `BuildRequest`. `families` are the families of processors
    that products of 8-bit numbers must be right on.
    """

    contract: Contract
    options: OptionsT
    precision: Precision
    device: Device
    built: str
    reference: str
    budget_seconds: float | None
    exported: str | None = None
    decision: str | None = None
    stand_in: bool = False
    steps: Steps | None = None
    evaluation: Evaluation | None = None
    families: tuple[ProductFamily, ...] = PRODUCT_FAMILIES


@dataclasses.dataclass(frozen=True)
class CrashRequest(Generic[OptionsT]):
    """What makes a runtime crash its process when it opens a target's model.

    `graph` is the folder of the graph that the model is built from, or of the built model if that
    is the same; `precision` and `decision` are as in `BuildRequest`.
    """

    options: OptionsT
    precision: Precision
    graph: str
    decision: str | None = None


@dataclasses.dataclass(frozen=True)
class InspectRequest:
    """Inspect an ONNX file (without reading its weights) or a Core ML package. With `modules`,
    report types per module.
    """

    model: str
    modules: bool = False


@dataclasses.dataclass(frozen=True)
class SurveyRequest:
    """What an ONNX file takes and returns, worked out from its graph and by running it.

    `seconds` limits how long it is run at different sizes; 0: not at all.
    """

    model: str
    seconds: float


@dataclasses.dataclass(frozen=True)
class SurveyModelRequest:
    """What a torch model takes and returns, worked out by running it.

    `seconds` limits how long it is run at different sizes. `example` is `path/to/file.py:callable`,
    which returns the inputs of one call. `small`: an architecture gets few layers.
    """

    source: Source
    seconds: float
    example: str | None = None
    small: bool = False


@dataclasses.dataclass(frozen=True)
class DiagnoseRequest:
    """Why the exported graph, or a target's model, differs from the original in one case of the
    reference.

    `exported` and `reference` are the folders of those stages, `source` is the original. A search
    of a runtime's own gets the target's `options`, encoded, and `built`, the folder of its files; a
    runtime that converts the model itself has no graph, and gets that model as `original`. If
    `limits` are given, by output, a float32 conversion within them is right: the difference is the
    precision's. `exporter` is what made the graph, if convkit exported it. `unusual` are the cases
    that failed, if rounding may explain them all: they have values that the model rarely meets.
    `seconds` is how long the search may take (see `worker.cause.graphs.isolated_trials.spent`).
    """

    source: Source
    contract: Contract
    exported: str | None
    reference: str
    case: str
    original: Original | None = None
    built: str | None = None
    options: Json = None
    limits: dict[str, dict[str, float]] = dataclasses.field(default_factory=dict)
    exporter: Exporter | None = None
    unusual: tuple[str, ...] = ()
    seconds: float = 100.0


@dataclasses.dataclass(frozen=True)
class RoundingRequest:
    """Which values' rounding makes a target miss its limits in one case of the reference.

    `exported` and `reference` are the folders of those stages, `limits` are by output.
    """

    contract: Contract
    exported: str
    reference: str
    case: str
    precision: LowPrecision
    limits: dict[str, dict[str, float]]


@dataclasses.dataclass(frozen=True)
class CompareRequest:
    """Compare two built artifacts: folders or single files (a package counts as one file).

    Float weights may differ by `epsilon`, relative to the largest magnitude in their tensor.
    """

    first: str
    second: str
    epsilon: float = 1e-6


StageRequest = (
    ExportRequest
    | ReferenceRequest
    | PrecisionRequest[object]
    | BuildRequest[object]
    | VerifyRequest[object]
    | JoinRequest
)
