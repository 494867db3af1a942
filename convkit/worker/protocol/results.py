"""One result type for each job."""

import dataclasses
from typing import Literal

from convkit.tensors import Contract
from convkit.worker.protocol.measurements import (
    CaseMetrics,
    Fallback,
    InvarianceMetrics,
    ProbeChange,
    ProbeMetrics,
    SimulatedCase,
)
from convkit.worker.protocol.model import Precision, Sample


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

    Probes make one `change` to the case `base`. `runnable` is false if the original model refused
    it. Cases of invariance leave something as it was, so that the outputs
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
    change: ProbeChange | None = None


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
class SizeBranch:
    """A comparison of sizes in the model, and its outcome by case. `place`: `file:line`, or a
    node.
    """

    place: str
    outcomes: dict[str, bool]


@dataclasses.dataclass(frozen=True)
class ReferenceResult:
    """Also written as `cases.json` among the reference's files, for the verify stage.

    `value_dependent` are lines of the original's code in which Python decides by the values of
    tensors. `branches` are comparisons of sizes that differ between the cases of the ladder.
    """

    cases: tuple[CaseRecord, ...]
    omitted: tuple[OmittedCase, ...]
    layout: Layout = Layout()
    value_dependent: tuple[str, ...] = ()
    branches: tuple[SizeBranch, ...] = ()


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

    precision: Precision
    modules: tuple[ModulePrecision, ...] = ()
    rounds: tuple[PlanRound, ...] = ()
    unmeasured: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class BuildResult:
    """`session` is the contract the built model states, `example_sizes` as in `ExportResult`."""

    session: Contract
    files: tuple[str, ...]
    size_bytes: int
    example_sizes: dict[str, int] = dataclasses.field(default_factory=dict)


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
class SurveyResult:
    """A file's contract with the sizes that it accepts, and how values for its inputs are drawn.

    `ran` says whether the file was run; else the sizes are guesses. `notes` are sentences for who
    reads the draft. `magnitudes` are the largest of each output of floats in any run. `quantized`:
    the file rounds activations to whole numbers, so that a rounding more or less shows.
    """

    contract: Contract
    samples: dict[str, Sample]
    ran: bool
    notes: tuple[str, ...] = ()
    magnitudes: dict[str, float] = dataclasses.field(default_factory=dict)
    quantized: bool = False


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


@dataclasses.dataclass(frozen=True)
class DiagnoseResult:
    """What the search for a cause came to; the causes are its findings.

    `error` is the largest error of the graph's outputs, in parts of the original's rms, `remaining`
    what is left of it with every cause corrected; None where the outputs cannot be computed.
    """

    error: float | None
    remaining: float | None
    causes: int


StageResult = ExportResult | ReferenceResult | PrecisionResult | BuildResult | VerifyResult
