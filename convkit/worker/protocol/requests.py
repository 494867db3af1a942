"""One request type for each job. Paths name what a worker reads; a key has digests instead."""

import dataclasses
from typing import Generic, Literal, TypeVar

from convkit.codec import Json
from convkit.tensors import Contract
from convkit.worker.protocol.model import Device, Exporter, Original, Precision, Sample, Source

# The runtime's own options: a frozen dataclass from its folder.
OptionsT = TypeVar("OptionsT")


@dataclasses.dataclass(frozen=True)
class ExportRequest:
    """Model -> contract-checked ONNX (`model.onnx` and `model.onnx.data`).

    `opset` 0: an ONNX file keeps its own.
    """

    source: Source
    contract: Contract
    samples: dict[str, Sample]
    exporter: Exporter
    opset: int
    input_order: Literal["signature", "recipe"]
    seed: int


@dataclasses.dataclass(frozen=True)
class ReferenceRequest:
    """The original model on every case: `cases.json`, `<case>/inputs/<name>.npy`,
    `<case>/outputs/<name>.npy`.

    `graph` is an ONNX file that was made elsewhere, whose comparisons cases are made for too.
    """

    source: Source
    contract: Contract
    samples: dict[str, Sample]
    seed: int
    texts: tuple[str, ...]
    budget_seconds: float | None
    skip_cases: tuple[str, ...]
    graph: str | None = None


@dataclasses.dataclass(frozen=True)
class PrecisionRequest(Generic[OptionsT]):
    """What a target's precision means for a model, before anything is built.

    `exported` is the folder of the exported graph, `original` the model itself: a runtime converts
    one of them. `reference` is the folder of the cases; `limits` are the tolerances by output, for
    `keep_float32: auto`.
    """

    contract: Contract
    options: OptionsT
    precision: Precision
    reference: str
    limits: dict[str, dict[str, float]]
    exported: str | None = None
    original: Original | None = None


@dataclasses.dataclass(frozen=True)
class BuildRequest(Generic[OptionsT]):
    """Exported graph, or the model itself, to the target's files.

    `exported` and `original` as in `PrecisionRequest`. `decision` is the folder of the precision
    stage, `reference` that of the cases, for builds that calibrate with them. `stand_in`: the
    device is absent, and a simulation on the CPU stands in for it. `caches` is a folder of what
    earlier builds measured, which this one may read and renew; it is no part of the key.
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


@dataclasses.dataclass(frozen=True)
class VerifyRequest(Generic[OptionsT]):
    """The built model on every case against the reference. Measures; judging is the host's.

    `exported` is the graph that a target of low precision was built from, `decision` the folder of
    its precision stage. `stand_in` as in `BuildRequest`.
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


@dataclasses.dataclass(frozen=True)
class InspectRequest:
    """A look into an ONNX file (no weights are read) or a Core ML package. With `modules`, types
    are told by module.
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
class DiagnoseRequest:
    """Why the exported graph, or a target's model, differs from the original in one case of the
    reference.

    `exported` and `reference` are the folders of those stages, `source` is the original. A search
    of a runtime's own gets the target's `options`, encoded, and `built`, the folder of its files; a
    runtime that converts the model itself has no graph, and gets that model as `original`.
    """

    source: Source
    contract: Contract
    exported: str | None
    reference: str
    case: str
    original: Original | None = None
    built: str | None = None
    options: Json = None


@dataclasses.dataclass(frozen=True)
class CompareRequest:
    """Two built artifacts: folders, or single files (a package is one).

    Weights of floats may be `epsilon` apart, relative to the largest magnitude in their tensor.
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
)
