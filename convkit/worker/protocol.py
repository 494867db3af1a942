"""What host and workers say to each other: one request and one result type per stage. Standard
library only.

A worker is started as `python -s -P <convkit>/worker/bootstrap.py REQUEST RESULT`. REQUEST holds an
`Envelope`; the worker writes its files under `Envelope.output` and, last and atomically, an
`Answer` to RESULT. Progress goes as JSON lines to the file descriptor named in the envelope. A
missing RESULT means that the worker died.
"""

import dataclasses
from typing import Literal

from convkit.codec import Json
from convkit.findings.model import Finding
from convkit.tensors import Contract

PROTOCOL = 1

StageKind = Literal["export", "reference", "precision", "build", "verify"]
# What a worker can be asked: a stage, a look into a model file, a comparison of two built
# artifacts. Core ML's stages work on the model itself, not on its graph, and TensorRT's make and
# run engines, in tools of their own.
JobKind = Literal[
    "export",
    "reference",
    "precision",
    "build",
    "verify",
    "coreml-precision",
    "coreml-build",
    "coreml-verify",
    "tensorrt-build",
    "tensorrt-verify",
    "inspect",
    "coreml-inspect",
    "compare",
    "coreml-compare",
]
SourceKind = Literal["hub", "path", "package", "config", "factory", "onnx"]
Exporter = Literal["torch", "optimum", "torchscript"]
Device = Literal["cpu", "cuda"]


@dataclasses.dataclass(frozen=True)
class Source:
    """The model to load. Which fields matter depends on `kind`.

    hub: `identifier` and `revision` (a commit) · path, package: `path` (a folder in transformers'
    layout) · config: `identifier` (an architecture such as `bert`), `seed`, `overrides` · factory:
    `path` (a Python file) and `identifier` (its callable), `overrides` (keyword arguments), `seed`
    · onnx: `path` (a file).
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


@dataclasses.dataclass(frozen=True)
class Sample:
    """How values for one input are drawn.

    token_ids: whole numbers below the vocabulary's size · padding_mask: ones with the padding's
    zeros · positions: 0, 1, 2, ... along the last axis · integers: low (included) to high
    (excluded) · normal: mean, standard deviation · uniform: low, high · constant: one value · file:
    an .npy file.
    """

    kind: Literal[
        "token_ids",
        "padding_mask",
        "positions",
        "integers",
        "normal",
        "uniform",
        "constant",
        "file",
    ]
    numbers: tuple[float, ...] = ()
    path: str | None = None


@dataclasses.dataclass(frozen=True)
class ExportRequest:
    """Model -> contract-checked ONNX (`model.onnx` and `model.onnx.data`)."""

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
    """

    source: Source
    contract: Contract
    samples: dict[str, Sample]
    seed: int
    texts: tuple[str, ...]
    budget_seconds: float | None
    skip_cases: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class PrecisionRequest:
    """Exported graph and reference -> what a target's precision means for them, before anything is
    built.

    `options` are the target's, as in `BuildRequest`; `limits` the tolerances by output, for
    `keep_float32: auto`.
    """

    model: str
    reference: str
    contract: Contract
    options: dict[str, Json]
    limits: dict[str, dict[str, float]]


@dataclasses.dataclass(frozen=True)
class BuildRequest:
    """Exported graph -> the target's files. `options` are the runtime's own keys from the recipe.

    `precision` is the folder of the precision stage, where there was one; `reference` that of the
    cases, for builds that calibrate with them. `stand_in`: the device is absent, and a simulation
    on the CPU stands in for it. `timing_caches` is a folder of what earlier builds measured, which
    this one may read and renew.
    """

    runtime: str
    device: Device
    model: str
    contract: Contract
    options: dict[str, Json]
    precision: str | None = None
    reference: str | None = None
    stand_in: bool = False
    timing_caches: str | None = None


@dataclasses.dataclass(frozen=True)
class Original:
    """The model itself, for runtimes that convert it and not its graph, and how example inputs are
    drawn for it.
    """

    source: Source
    samples: dict[str, Sample]
    input_order: Literal["signature", "recipe"]
    seed: int


@dataclasses.dataclass(frozen=True)
class ProgramPrecisionRequest:
    """Model and reference -> what a Core ML target's precision means for them; otherwise as
    `PrecisionRequest`.
    """

    original: Original
    reference: str
    contract: Contract
    options: dict[str, Json]
    limits: dict[str, dict[str, float]]


@dataclasses.dataclass(frozen=True)
class ProgramBuildRequest:
    """Model -> a Core ML package; otherwise as `BuildRequest`.

    `provenance` are texts that the package carries in its metadata, beside its contract.
    """

    original: Original
    contract: Contract
    options: dict[str, Json]
    provenance: dict[str, str]
    precision: str | None = None


@dataclasses.dataclass(frozen=True)
class VerifyRequest:
    """The built model on every case against the reference. Measures; judging is the host's.

    `exported` is the graph that a target of low precision was built from, `precision` the folder of
    its precision stage. `stand_in` as in `BuildRequest`.
    """

    runtime: str
    device: Device
    model: str
    reference: str
    contract: Contract
    options: dict[str, Json]
    budget_seconds: float | None
    exported: str | None = None
    precision: str | None = None
    stand_in: bool = False


@dataclasses.dataclass(frozen=True)
class ExportResult:
    """`graph` is the contract as found in the exported graph; `example_sizes` the axis sizes it was
    traced at.
    """

    graph: Contract
    opset: int
    ir_version: int
    example_sizes: dict[str, int]
    parameters: int
    size_bytes: int


CaseKind = Literal["ladder", "probe", "invariance"]


@dataclasses.dataclass(frozen=True)
class CaseRecord:
    """One named set of inputs, in the folder of the same name.

    Probes change one thing about the case `base`: `crossed:a:b` exchanges two inputs, `merged:a:b`
    feeds a's values to b as well, `perturbed:a` gives a other values. `runnable` is false where the
    original model refused it. Cases of invariance leave something as it was, so that the outputs
    must stay as they were (see `InvarianceMetrics`).
    """

    name: str
    kind: CaseKind
    description: str
    sizes: dict[str, int]
    seconds: float
    base: str | None = None
    runnable: bool = True
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class OmittedCase:
    """A case that was not run, and why."""

    name: str
    reason: str


@dataclasses.dataclass(frozen=True)
class Layout:
    """Where rows and padding lie in a contract's tensors, for the checks of invariance.

    `rows` is the axis that the rows of a batch lie along (None: there is none), `masks` the inputs
    whose zeros mark padding along their last dimension.
    """

    rows: str | None = None
    masks: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ReferenceResult:
    """Also written as `cases.json` among the reference's files, for the verify stage.

    `value_dependent` are lines of the original's code in which Python decides by the values of
    tensors.
    """

    cases: tuple[CaseRecord, ...]
    omitted: tuple[OmittedCase, ...]
    layout: Layout = Layout()
    value_dependent: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class ModulePrecision:
    """One module's own nodes under a precision, and the ranges of what they compute in float32.

    `low` and `float32` count nodes, `low_weights` and `float32_weights` the weights' elements, by
    the type they are computed and stored in; `reasons` say why nodes stay in float32. `headroom` is
    how many times larger the module's largest tensor could grow before it overflows the low type
    (below 1 it does; None: all zeros, or nothing measured): `largest` is its magnitude, `tensor`
    its name, `case` where it was met.
    """

    module: str
    low: int
    float32: int
    low_weights: int
    float32_weights: int
    reasons: tuple[str, ...] = ()
    headroom: float | None = None
    largest: float = 0.0
    tensor: str = ""
    case: str = ""


@dataclasses.dataclass(frozen=True)
class PlanRound:
    """One round of the search for what must stay in float32.

    `overshoot` is by what factor the error was too large for the tolerance (at most 1: within it;
    None: NaN or infinity), in the case `case`.
    """

    keep_float32: tuple[str, ...]
    overshoot: float | None
    case: str


@dataclasses.dataclass(frozen=True)
class PrecisionResult:
    """A precision, decided: `precision` is the option with `auto` worked out.

    `modules` in the graph's order; `rounds` where convkit searched; `unmeasured` tensors whose
    range is not known.
    """

    precision: Json
    modules: tuple[ModulePrecision, ...] = ()
    rounds: tuple[PlanRound, ...] = ()
    unmeasured: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class BuildResult:
    """`session` is the contract as the built model states it, `example_sizes` as in `ExportResult`."""

    session: Contract
    files: tuple[str, ...]
    size_bytes: int
    example_sizes: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class TensorMetrics:
    """How one output differs from the reference in one case. Errors are over elements finite on
    both sides.

    `frontier` holds the (|reference|, |error|) pairs on the upper convex hull, so that `max(|error|
    - rtol * |reference|)` is known exactly for every rtol >= 0 without the tensors. Elements at
    padding (see `TensorSpec.mask`) are in none of this but the counts of NaN and infinity:
    `padding_elements` says how many they are, `padding_max_abs` how far they differ.
    """

    output: str
    elements: int
    max_abs: float
    max_rel: float
    mean_abs: float
    rms: float
    cosine: float
    worst_index: tuple[int, ...]
    worst_reference: float
    worst_candidate: float
    nan_reference: int
    nan_candidate: int
    inf_reference: int
    inf_candidate: int
    inf_mismatched: int
    frontier: tuple[tuple[float, float], ...] = ()
    mismatch: str | None = None  # shape or dtype differ: nothing was compared
    padding_elements: int = 0
    padding_max_abs: float = 0.0


@dataclasses.dataclass(frozen=True)
class CaseMetrics:
    """One case under the built model; `error` holds the runtime's message where it refused to run."""

    case: str
    seconds: float
    outputs: tuple[TensorMetrics, ...]
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class ProbeMetrics:
    """What a probe showed, each number a largest absolute difference over all outputs (None: it
    could not be run).

    `moved_reference`, `moved_candidate`: how far the probe moves the original's and the built
    model's outputs away from their own outputs on the base case. `matches_base`: the built model
    under the probe against the original on the base case (small for `crossed`: right when
    exchanged). `matches_probe`: the built model on the base case against the original under the
    probe (small for `merged`: the built model took a's values for b).
    """

    probe: str
    moved_reference: (
        float | None
    )  # for `outputs:a:b`, which changes no input: how far the original's two are apart
    moved_candidate: float | None
    matches_base: float | None
    matches_probe: float | None
    base_error: float | None


# padding: more of it was added · masked-values: other values stand at masked positions · batch: a
# row alone in its batch · determinism: the same inputs once more.
InvarianceCheck = Literal["padding", "masked-values", "batch", "determinism"]


@dataclasses.dataclass(frozen=True)
class InvarianceMetrics:
    """How far each model's own outputs are apart in two cases that should give the same, by output.

    `case` is compared with the case `base`; only elements that both cases have count: real
    positions, the one row. In these metrics `reference` means the model's output in the base case,
    `candidate` that in the other.
    """

    check: InvarianceCheck
    case: str
    base: str
    original: tuple[TensorMetrics, ...]
    candidate: tuple[TensorMetrics, ...]


@dataclasses.dataclass(frozen=True)
class Fallback:
    """Nodes that ran on another provider than the one asked for."""

    provider: str
    nodes: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class SimulatedCase:
    """One case of a low precision that ran on its device, beside the simulation of the same graph.

    `simulation` is the simulation against the original, `agreement` the device against the
    simulation.
    """

    simulation: CaseMetrics
    agreement: CaseMetrics


@dataclasses.dataclass(frozen=True)
class VerifyResult:
    """Metrics, apart from thresholds. `evidence` says what they rest on; `simulated` is there
    beside a device's.
    """

    evidence: Literal["device", "simulated"]
    session: Contract
    providers: tuple[str, ...]
    fallbacks: tuple[Fallback, ...]
    cases: tuple[CaseMetrics, ...]
    omitted: tuple[OmittedCase, ...]
    probes: tuple[ProbeMetrics, ...]
    simulated: tuple[SimulatedCase, ...] = ()
    invariance: tuple[InvarianceMetrics, ...] = ()


@dataclasses.dataclass(frozen=True)
class InspectRequest:
    """A look into an ONNX file (no weights are read) or a Core ML package. With `modules`, types
    are told by module.
    """

    model: str
    modules: bool = False


@dataclasses.dataclass(frozen=True)
class ModuleTypes:
    """One module's own nodes by the element type of what they give, and its weights' elements by
    theirs.
    """

    module: str
    nodes: dict[str, int]
    weights: dict[str, int]


@dataclasses.dataclass(frozen=True)
class InspectResult:
    """What a model file is. `elements` counts the weights' elements by element type, `operators`
    nodes by operator.

    Of a package, `ir_version` is the version of Core ML's format.
    """

    graph: Contract
    carried: Contract | None
    opsets: dict[str, int]
    ir_version: int
    producer: str
    size_bytes: int
    elements: dict[str, int]
    operators: dict[str, int]
    metadata: dict[str, str]
    modules: tuple[ModuleTypes, ...] = ()


@dataclasses.dataclass(frozen=True)
class CompareRequest:
    """Two built artifacts: folders, or single files (a package is one).

    Weights of floats may be `epsilon` apart, relative to the largest magnitude in their tensor.
    """

    first: str
    second: str
    epsilon: float = 1e-6


# Best first; the last two say that only the first, or only the second has the file.
Likeness = Literal[
    "BIT_IDENTICAL", "CANONICAL_IDENTICAL", "STRUCTURAL", "DIFFERENT", "MISSING", "EXTRA"
]

# value: the type of a tensor between nodes · model: another field of the model or of one of its
# graphs · file: bytes · more: how many further differences are not listed.
DifferenceKind = Literal[
    "initializer",
    "node",
    "attribute",
    "metadata",
    "input",
    "output",
    "value",
    "opset",
    "function",
    "model",
    "file",
    "more",
]


@dataclasses.dataclass(frozen=True)
class Difference:
    """One thing in which two files differ: where, what either has (empty: nothing), and what else
    is to be said.
    """

    kind: DifferenceKind
    place: str
    first: str = ""
    second: str = ""
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class FileComparison:
    """How alike two files of one name are. A package is one file; a file of weights is as alike as
    its model.

    `differences` are at most 50, of `kind` "more" the last where there are others. They are told
    with the model, not again with its file of weights.
    """

    name: str
    likeness: Likeness
    differences: tuple[Difference, ...] = ()


@dataclasses.dataclass(frozen=True)
class CompareResult:
    """Every file of two artifacts, sorted by name."""

    files: tuple[FileComparison, ...]


StageRequest = (
    ExportRequest
    | ReferenceRequest
    | PrecisionRequest
    | BuildRequest
    | VerifyRequest
    | ProgramPrecisionRequest
    | ProgramBuildRequest
)
StageResult = ExportResult | ReferenceResult | PrecisionResult | BuildResult | VerifyResult


@dataclasses.dataclass(frozen=True)
class Envelope:
    """What the request file holds. `output` is an empty folder for the stage's files.

    The worker ends itself when the process `parent_pid` is gone. `expected` are the versions that
    its environment is to have, by normalised package name: what it imports of other versions breaks
    the stage.
    """

    protocol: int
    stage: JobKind
    output: str
    request: Json
    events_fd: int | None = None
    threads: int | None = None
    parent_pid: int | None = None
    expected: dict[str, str] = dataclasses.field(default_factory=dict)


Outcome = Literal["done", "broken", "skipped"]


@dataclasses.dataclass(frozen=True)
class Answer:
    """What the result file holds.

    done: `result` is there; error findings among `findings` fail the stage's targets. broken: the
    tool failed, `error` and `log` say how. skipped: this machine lacks what the stage needs,
    `error` says what. `opened` are the files, by absolute path, that a stage which loads a model
    read besides its environment (see `convkit.worker.opened_files`).
    """

    protocol: int
    outcome: Outcome
    result: Json = None
    findings: tuple[Finding, ...] = ()
    error: str | None = None
    traceback: str | None = None
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    opened: tuple[str, ...] = ()
