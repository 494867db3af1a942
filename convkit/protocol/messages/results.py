"""One result type per job."""

import dataclasses
from typing import Literal

from convkit.protocol.contract import Contract, DType
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import Json
from convkit.protocol.messages.call_steps import GreedyRow, StepTrial
from convkit.protocol.messages.custom_operators import OperatorLibrary
from convkit.protocol.messages.evaluation import EvaluationMetrics
from convkit.protocol.messages.measurements import (
    CaseMetrics,
    Fallback,
    InvarianceMetrics,
    ProbeChange,
    ProbeMetrics,
    ResultMetrics,
    SimulatedCase,
    TensorMetrics,
)
from convkit.protocol.messages.model_request import (
    CaseName,
    Exporter,
    LowType,
    Precision,
    ProductFamily,
    Sample,
)
from convkit.protocol.postprocessing_constants import LabelConstants


@dataclasses.dataclass(frozen=True)
class ExportResult:
    """`graph` is the exported graph's contract; `example_sizes` are the axis sizes it was traced
    with.
    """

    graph: Contract
    opset: int
    ir_version: int
    example_sizes: dict[str, int]
    parameters: int
    size_bytes: int


CaseKind = Literal["ladder", "probe", "invariance", "step"]


# Extremes of every legal range, values next to those the model compares with or decides at, rows of
# zeros and the like, and rows without a live position or with holes: legal inputs, but not typical.
_UNUSUAL = frozenset({"extreme", "values", "masked-row", "mask-patterns", "texts:unusual"})


def is_usual(case: str) -> bool:
    """Return True if a case of the ladder has typical values."""
    return case not in _UNUSUAL and not is_at_decisions(case) and not is_of_plain_rows(case)


def is_at_decisions(case: str) -> bool:
    """Return True if a case has values at which the model decides, and their neighbors."""
    return case.partition(":")[0] == "decisions"


# Cases in which together every whole number of an input occurs.
EVERY_NUMBER = "sweep:numbers"


def is_of_sweep(case: str) -> bool:
    """Return True if a case is one of the many that a model has only if it computes little."""
    return case.partition(":")[0] == "sweep"


def is_of_plain_rows(case: str) -> bool:
    """Return True if a case has rows of zeros, of one value, equal rows, or one huge value."""
    return case.partition(":")[0] == "plain-rows"


@dataclasses.dataclass(frozen=True)
class CaseRecord:
    """One named set of inputs, stored in the folder of the same name.

    Probes make one `change` to the case `base`. `runnable` is False if the original model rejected
    it. Invariance cases change something that must not affect the outputs (see
    `InvarianceMetrics`). A step's `base` is the call before it, whose outputs feed it; only inputs
    that nothing feeds are stored for it. `row_order` says which of the first rows each row is a
    copy of, if the original is proven to compute each row by itself; otherwise it is empty.
    `passes_nan`: inputs hold NaN, or the original's code writes it, and it returns NaN because of
    that alone: with numbers in its place, it returns none.
    """

    name: str
    kind: CaseKind
    description: str
    sizes: dict[str, int]
    seconds: float
    base: str | None = None
    runnable: bool = True
    detail: str = ""
    change: ProbeChange | None = None
    row_order: tuple[int, ...] = ()
    passes_nan: bool = False


@dataclasses.dataclass(frozen=True)
class OmittedCase:
    """A case that was not run, and why.

    `applies` is False if there is nothing that it could prove: the recipe has nothing for it to
    test, or other cases cover it.
    """

    name: str
    reason: str
    applies: bool = True


@dataclasses.dataclass(frozen=True)
class Layout:
    """The axes of rows and padding in a contract's tensors, for the invariance checks.

    `rows` is the batch axis (None if there is none), `masks` are the inputs whose zeros mark
    padding along their last dimension.
    """

    rows: str | None = None
    masks: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class SizeBranch:
    """A comparison of sizes in the model, by case. `place`: `file:line`, or a node."""

    place: str
    outcomes: dict[str, bool]


@dataclasses.dataclass(frozen=True)
class RoundedOutput:
    """What rounding weights and inputs to a type, and nothing else, makes of an output of the
    original in a case: no conversion to the type does better. `activations`: what goes into its
    products was rounded, too, each tensor by one scale, as a quantization to int8 does.
    """

    type: LowType
    case: str
    metrics: TensorMetrics
    activations: bool = False


@dataclasses.dataclass(frozen=True)
class ReferenceResult:
    """Also written as `cases.json` among the reference's files, for the verify stage, without
    `rounded`.

    `branches` are comparisons of sizes that differ between the cases of the ladder. `met_denormals`
    are the cases in which the original met a denormal number, `taken_over` counts those whose
    outputs are an earlier reference's; the file has neither.
    """

    cases: tuple[CaseRecord, ...]
    omitted: tuple[OmittedCase, ...]
    layout: Layout = Layout()
    branches: tuple[SizeBranch, ...] = ()
    rounded: tuple[RoundedOutput, ...] = ()
    met_denormals: tuple[str, ...] = ()
    taken_over: int = 0


@dataclasses.dataclass(frozen=True)
class ModulePrecision:
    """One module's own nodes under a precision, and the ranges of their results in float32.

    `low` and `float32` count nodes, `low_weights` and `float32_weights` count weight elements, by
    the type they are computed and stored in. `reasons` explain why nodes stay in float32.
    `headroom` is the factor by which the module's largest tensor could grow before it overflows the
    low type (below 1 it overflows; None: all zeros, or not measured). `largest` is that tensor's
    magnitude, `tensor` its name, `case` the case in which it occurred.
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
    """One round of the search for modules that must stay in float32.

    `overshoot` is the factor by which the error exceeded the tolerance (at most 1: within it; None:
    NaN or infinity), in the case `case`.
    """

    keep_float32: tuple[str, ...]
    overshoot: float | None
    case: str


@dataclasses.dataclass(frozen=True)
class PrecisionResult:
    """A resolved precision: `precision` is the recipe's option with `auto` replaced.

    `modules` are in graph order. `rounds` is filled if convkit searched. `unmeasured` lists tensors
    of unknown range.
    """

    precision: Precision
    modules: tuple[ModulePrecision, ...] = ()
    rounds: tuple[PlanRound, ...] = ()
    unmeasured: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class BuildResult:
    """`session` is the contract that the built model declares; `example_sizes` is as in
    `ExportResult`.
    """

    session: Contract
    files: tuple[str, ...]
    size_bytes: int
    example_sizes: dict[str, int] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class FamilyMetrics:
    """The ladder as processors of another family run it, simulated, and the score on the user's
    rows. `unknown` are the nodes whose products are exact here, because what saturation does to
    them cannot be computed.
    """

    family: ProductFamily
    cases: tuple[CaseMetrics, ...]
    omitted: tuple[OmittedCase, ...]
    unknown: tuple[str, ...] = ()
    evaluation: EvaluationMetrics | None = None


@dataclasses.dataclass(frozen=True)
class VerifyResult:
    """Metrics, independent of thresholds. `evidence` states how they were obtained; `simulated`
    accompanies the results of a device. `trials` may explain steps that are off, `greedy` compares
    generated tokens, `packaged` those that a package's own runtime generates, `results` what an
    app makes of the outputs. `family` is the family of processors that the results are of, if
    another one, in `families`, may get others. `families_agree`: products of 8-bit numbers saturate
    on none.
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
    trials: tuple[StepTrial, ...] = ()
    greedy: tuple[GreedyRow, ...] = ()
    evaluation: EvaluationMetrics | None = None
    packaged: tuple[GreedyRow, ...] = ()
    results: tuple[ResultMetrics, ...] = ()
    family: ProductFamily | None = None
    families: tuple[FamilyMetrics, ...] = ()
    families_agree: bool = False


@dataclasses.dataclass(frozen=True)
class ModuleTypes:
    """One module's own nodes by the element type of their results, and its weight elements by
    type.
    """

    module: str
    nodes: dict[str, int]
    weights: dict[str, int]


@dataclasses.dataclass(frozen=True)
class InspectResult:
    """Summary of a model file. `elements` counts weight elements by element type, `operators`
    counts nodes by operator.

    For a package, `ir_version` is the version of the Core ML format.
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


# What a cosine may lose to rounding; correct low-precision models lose less.
_DECIDED = 0.03


@dataclasses.dataclass(frozen=True)
class Rounding:
    """How far rounding alone moves an output, at most: by an absolute difference, and to a cosine
    with what it was.
    """

    largest: float
    cosine: float = 1.0

    @property
    def decides(self) -> bool:
        """True if rounding alone makes another output of it: no tolerance could tell a fault."""
        return not self.cosine >= 1 - _DECIDED

    def or_more(self, other: "Rounding | None") -> "Rounding":
        """Return the worse of both in either respect."""
        if other is None:
            return self
        return Rounding(max(self.largest, other.largest), min(self.cosine, other.cosine))


# Where a survey leaves the values of the user's example, and the most bytes that it leaves.
EXAMPLE_FILE = "example.npz"
MOST_EXAMPLE_BYTES = 8 << 20


@dataclasses.dataclass(frozen=True)
class SurveyResult:
    """A file's contract with the sizes that it accepts, and how values for its inputs are drawn.

    `ran` says whether the file was run; else the sizes are guesses. `notes` are sentences for who
    reads the draft. `magnitudes` are the largest of each output of floats in any run, `faintest`
    the largest of the run in which that is least. `quantized`: the file rounds activations to whole
    numbers, so that a rounding more or less shows. `rounding` is by how much each output changes if
    each input, and if `quantized` each weight, moves to the next number. `task` is the head that
    transformers loads, `overrides` are those of an architecture's configuration. `libraries`
    implement the file's custom operators. `loops`: the model is called in a loop, in which
    `present.*` become `past.*`. `labels` are those that the file names, by the output that scores
    them. `skip` are the cases that the model returns NaN for, `exporter` the one that keeps the
    contract if it is not torch's. `flips` is the share of each output of whole numbers that
    rounding decides, and the relative RMS of what it decides of one of fractions. `counted` is the
    share of its own by which rounding changes an output of whole numbers that count something.
    `computes_in` are the types of low precision in which the file or the module computes. `draws`:
    the file draws random numbers, and was run with fixed ones in their place. `weights` is the type
    that the model's weights were loaded in, if not their own. `example_bytes` are those of the
    user's example, which is among the result's files unless it is too large. `guessed`: the inputs'
    sizes and values are what the model happened to run with. `axis_notes` are sentences about axes:
    what shows which of them is the batch. `findings` are faults of the file itself, which `notes`
    have, too. `convolves`: most of the module's weights are those of convolutions.
    """

    contract: Contract
    samples: dict[str, Sample]
    ran: bool
    notes: tuple[str, ...] = ()
    magnitudes: dict[str, float] = dataclasses.field(default_factory=dict)
    quantized: bool = False
    rounding: dict[str, Rounding] = dataclasses.field(default_factory=dict)
    task: str | None = None
    overrides: dict[str, Json] = dataclasses.field(default_factory=dict)
    libraries: tuple[OperatorLibrary, ...] = ()
    faintest: dict[str, float] = dataclasses.field(default_factory=dict)
    loops: bool = False
    labels: dict[str, LabelConstants] = dataclasses.field(default_factory=dict)
    skip: tuple[CaseName, ...] = ()
    exporter: Exporter | None = None
    flips: dict[str, float] = dataclasses.field(default_factory=dict)
    counted: dict[str, float] = dataclasses.field(default_factory=dict)
    computes_in: tuple[DType, ...] = ()
    draws: bool = False
    weights: DType | None = None
    axis_notes: dict[str, str] = dataclasses.field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    example_bytes: int = 0
    guessed: bool = False
    convolves: bool = False


# Best first. The last two mean that only the first or only the second artifact has the file.
Likeness = Literal[
    "BIT_IDENTICAL", "CANONICAL_IDENTICAL", "STRUCTURAL", "DIFFERENT", "MISSING", "EXTRA"
]

# value: the type of a tensor between nodes · model: another field of the model or one of its graphs
# · file: bytes · more: the number of further differences that are not listed
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
    """One difference between two files: its place, the value on either side (empty: nothing), and
    further details.
    """

    kind: DifferenceKind
    place: str
    first: str = ""
    second: str = ""
    detail: str = ""


@dataclasses.dataclass(frozen=True)
class FileComparison:
    """How similar two files of the same name are. A package is one file; an external weights file
    is rated together with its model.

    `differences` has at most 50 entries; if there are more, the last has kind "more". Differences
    in external weights are listed with the model only.
    """

    name: str
    likeness: Likeness
    differences: tuple[Difference, ...] = ()


@dataclasses.dataclass(frozen=True)
class CompareResult:
    """Every file of two artifacts, sorted by name."""

    files: tuple[FileComparison, ...]


@dataclasses.dataclass(frozen=True)
class DiagnoseResult:
    """Result of the search for a cause; the causes themselves are findings.

    `error` is the largest error of the graph's outputs, relative to the original's RMS. `remaining`
    is the error left with every cause corrected; None if the outputs cannot be computed.
    """

    error: float | None
    remaining: float | None
    causes: int


@dataclasses.dataclass(frozen=True)
class RoundingResult:
    """Result of the search for values whose rounding matters; the values are findings.

    `float32` is how many times its limit the graph's error is without any rounding; None if the
    graph cannot be examined.
    """

    float32: float | None


StageResult = ExportResult | ReferenceResult | PrecisionResult | BuildResult | VerifyResult
