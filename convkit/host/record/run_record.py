"""A run's record: the contents of `result.json` (docs/result.md). Versioned; standard library only.

Everything that people or tools later need to know about a run is read from here: the table, the
report, MLflow, the audit.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

from convkit.host.findings.consequences import cause_of
from convkit.protocol.contract import Contract
from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import (
    EvaluationMetrics,
    GreedyRow,
    InvarianceMetrics,
    OmittedCase,
    PrecisionResult,
    ProbeMetrics,
    ProductFamily,
    ResultMetrics,
    RoundedOutput,
    SimulatedCase,
    SizeBranch,
    StageKind,
    StepTrial,
    TensorMetrics,
    UnpaddedMetrics,
)
from convkit.protocol.metrics.limits import LimitProblem

FORMAT = 1

# hit: reused from the store · done: run now · broken: a tool failed · skipped: this machine lacks
# something · blocked: an earlier stage did not finish.
StageStatus = Literal["hit", "done", "broken", "skipped", "blocked"]

# verified: every comparison passed · failed: a comparison failed or a check found an error ·
# waived: it failed, but the recipe waives each of its errors · unproven: nothing failed, but a
# wrong model would have passed, too · skipped · broken: a stage broke.
TargetStatus = Literal["verified", "failed", "waived", "unproven", "skipped", "broken"]

# A target's status if its verifications (or stages) ended differently: the worst one.
WORST_LAST: tuple[TargetStatus, ...] = (
    "verified",
    "skipped",
    "unproven",
    "waived",
    "failed",
    "broken",
)

# active: the target shows the error · unused: it does not · unchecked: nothing was compared ·
# expired: the target shows the error, and the waiver no longer counts.
WaiverState = Literal["active", "unused", "unchecked", "expired", "expired-unused"]


def worst_status(statuses: Sequence[TargetStatus]) -> TargetStatus:
    """Return the worst of several statuses; broken if there is none, as nothing was proven."""
    return max(statuses, key=WORST_LAST.index) if statuses else "broken"


@dataclasses.dataclass(frozen=True)
class StageReport:
    """One stage of a run.

    `id` is `export`, `reference`, `precision:<target>`, `build:<target>` or
    `verify:<target>[@<version>]`. With parts, those of a part are `export/<part>`,
    `reference/<part>` and `build:<target>/<part>`; `reference` and `join:<target>` are the whole's.

    Times are seconds since the epoch. `seconds` is the stage's duration when it ran (also for a
    hit), `log` a path inside the run's folder.
    """

    id: str
    kind: StageKind
    key: str
    status: StageStatus
    reason: str
    target: str | None = None
    version: str | None = None
    artifact: str | None = None
    started: float | None = None
    ended: float | None = None
    seconds: float = 0.0
    peak_memory_bytes: int = 0
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    findings: tuple[Finding, ...] = ()
    error: str | None = None
    log: str | None = None


@dataclasses.dataclass(frozen=True)
class OutputVerdict:
    """The verdict on one output of one case.

    `problems` are the reasons for a failure, `failures` their messages. Older records contain only
    messages. `unpadded` are the metrics without padding, if the largest error is at padding.
    """

    output: str
    passed: bool
    failures: tuple[str, ...]
    limits: dict[str, float]
    metrics: TensorMetrics
    problems: tuple[LimitProblem, ...] = ()
    unpadded: UnpaddedMetrics | None = None


@dataclasses.dataclass(frozen=True)
class CaseVerdict:
    """The verdict on one case."""

    case: str
    description: str
    sizes: dict[str, int]
    passed: bool
    seconds: float
    outputs: tuple[OutputVerdict, ...]
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class Verification:
    """The verdict on one target under one runtime release. `stage` is the id of the verify stage.
    `greedy` compares generated tokens, `packaged` those that a package's own runtime generates.
    `trials` may explain steps that are off, `branches` sizes that fail, `rows` (the batch axis)
    what fails with other rows, `results` what an app makes of the outputs, `rounded` is what
    rounding to the target's type makes of the original: a record is judged again from them.

    `leading` is the finding shown in the headline; None if there is none, and in older records.
    `evaluation` is the score on the user's rows, `decided_by` what the verdict rests on: tolerance,
    task metric, or both. `family` is the family of processors that it holds for; None if it holds
    for all. `families_agree`: products of 8-bit numbers were found to saturate on none.
    """

    stage: str
    version: str | None
    status: TargetStatus
    evidence: Literal["device", "simulated", "skipped"]
    headline: str
    cases: tuple[CaseVerdict, ...] = ()
    omitted: tuple[OmittedCase, ...] = ()
    probes: tuple[ProbeMetrics, ...] = ()
    providers: tuple[str, ...] = ()
    simulated: tuple[SimulatedCase, ...] = ()
    invariance: tuple[InvarianceMetrics, ...] = ()
    greedy: tuple[GreedyRow, ...] = ()
    findings: tuple[Finding, ...] = ()
    leading: Finding | None = None
    evaluation: EvaluationMetrics | None = None
    decided_by: str = "tolerance"
    packaged: tuple[GreedyRow, ...] = ()
    trials: tuple[StepTrial, ...] = ()
    branches: tuple[SizeBranch, ...] = ()
    rows: str | None = None
    results: tuple[ResultMetrics, ...] = ()
    family: ProductFamily | None = None
    families_agree: bool = False
    rounded: tuple[RoundedOutput, ...] = ()

    @property
    def id(self) -> str:
        """What tells it from a target's other verifications: the stage, and the family, if any."""
        return self.stage if self.family is None else f"{self.stage}, {self.family}"

    @property
    def label(self) -> str:
        """The release and the family of processors, as far as it has them."""
        return ", ".join(each for each in (self.version, self.family) if each)


@dataclasses.dataclass(frozen=True)
class AppliedWaiver:
    """A waiver of the recipe and what became of it. `until` is the last day (UTC) it counts."""

    code: str
    reason: str
    until: str
    state: WaiverState


@dataclasses.dataclass(frozen=True)
class TargetReport:
    """One target of a run. `files` are paths inside the run's folder; `headline` is a one-line
    summary.

    `leading` is the finding shown in the headline, as in `Verification`. `traced_at` are the axis
    sizes with which the exporter traced the model. `plan` lists the precision of each module, if it
    was determined before the build.
    """

    name: str
    runtime: str
    device: str
    precision: str
    status: TargetStatus
    headline: str
    verifications: tuple[Verification, ...] = ()
    findings: tuple[Finding, ...] = ()
    files: tuple[str, ...] = ()
    size_bytes: int = 0
    traced_at: dict[str, int] = dataclasses.field(default_factory=dict)
    plan: PrecisionResult | None = None
    leading: Finding | None = None
    waivers: tuple[AppliedWaiver, ...] = ()


@dataclasses.dataclass(frozen=True)
class RepairStep:
    """A remedy that a repair applied.

    One `round` (from 1) may apply several remedies. `code` and `message` are those of the finding
    that suggested the `change`, in `target`; `outcome` is the result of the run with the round's
    changes.
    """

    round: int
    target: str
    code: str
    message: str
    change: dict[str, Json]
    outcome: str | None = None


@dataclasses.dataclass(frozen=True)
class WithdrawnStep:
    """A remedy that a repair tried and took back, and why."""

    step: RepairStep
    reason: str


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A complete run. `key` is a digest of everything that determines the outcome: stage keys,
    tolerances, targets.

    `repaired_from` is the id of the run that this one repairs with the remedies in `repair`;
    `withdrawn` are those that were tried before this run and are not in its recipe.
    `recipe_commit` was checked out where the recipe lies; empty outside of a git repository.
    `provenance`: a `provenance.json` was written with this record, so if it is absent, it was lost.
    """

    format: int
    convkit: str
    id: str
    key: str
    recipe: str
    recipe_file: str
    recipe_text: str
    recipe_digest: str
    description: str
    experiment: str
    contract: Contract
    command: tuple[str, ...]
    toolchain: Literal["isolated", "host"]
    host: dict[str, Json]
    started: float
    ended: float
    status: TargetStatus
    exit_code: int
    stages: tuple[StageReport, ...]
    targets: tuple[TargetReport, ...]
    repaired_from: str | None = None
    repair: tuple[RepairStep, ...] = ()
    provenance: bool = False
    recipe_folder: str = ""
    recipe_commit: str = ""
    withdrawn: tuple[WithdrawnStep, ...] = ()

    @property
    def unjudged_stages(self) -> tuple[StageReport, ...]:
        """Return the stages whose findings no verdict has chosen from."""
        judged = {each.stage for target in self.targets for each in target.verifications}
        return tuple(stage for stage in self.stages if stage.id not in judged)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return all findings of stages, targets and verifications, in order, without
        duplicates, except those that a verdict dropped, or took the remedy from as it follows from
        another.
        """
        judged: list[Finding] = []
        for target in self.targets:
            judged += target.findings
            for verification in target.verifications:
                judged += verification.findings
        following = {(each.code, each.message) for each in judged if cause_of(each) is not None}
        found = [
            finding
            for stage in self.unjudged_stages
            for finding in stage.findings
            if (finding.code, finding.message) not in following
        ]
        return tuple({str(finding): finding for finding in (*found, *judged)}.values())
