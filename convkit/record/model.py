"""A run's record: what `result.json` holds (docs/result.md). Versioned; standard library only.

Everything that people or tools later ask of a run is read from here: the table, the report, MLflow,
the audit.
"""

import dataclasses
from typing import Literal

from convkit.codec import Json
from convkit.findings.model import Finding
from convkit.metrics.limits import Problem
from convkit.tensors import Contract
from convkit.worker.protocol import (
    InvarianceMetrics,
    OmittedCase,
    PrecisionResult,
    ProbeMetrics,
    SimulatedCase,
    StageKind,
    TensorMetrics,
)

FORMAT = 1

# hit: taken from the store · done: run now · broken: a tool failed · skipped: this machine lacks
# something · blocked: an earlier stage did not finish.
StageStatus = Literal["hit", "done", "broken", "skipped", "blocked"]

# verified: every comparison held · failed: one did not, or a check found an error · skipped ·
# broken: a stage broke.
TargetStatus = Literal["verified", "failed", "skipped", "broken"]


@dataclasses.dataclass(frozen=True)
class StageReport:
    """One stage of a run.

    `id` is `export`, `reference`, `precision:<target>`, `build:<target>` or
    `verify:<target>[@<version>]`.

    Times are seconds since the epoch; `seconds` is what the stage took when it ran (also for a
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
    """One output of one case, judged.

    `problems` are the reasons why it failed, `failures` their messages. Records of older releases
    have the messages alone.
    """

    output: str
    passed: bool
    failures: tuple[str, ...]
    limits: dict[str, float]
    metrics: TensorMetrics
    problems: tuple[Problem, ...] = ()


@dataclasses.dataclass(frozen=True)
class CaseVerdict:
    """One case, judged."""

    case: str
    description: str
    sizes: dict[str, int]
    passed: bool
    seconds: float
    outputs: tuple[OutputVerdict, ...]
    error: str | None = None


@dataclasses.dataclass(frozen=True)
class Verification:
    """One target under one runtime release, judged. `stage` is the id of the verify stage.

    `leading` is the finding that the headline shows; None if it shows none, and in older records.
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
    findings: tuple[Finding, ...] = ()
    leading: Finding | None = None


@dataclasses.dataclass(frozen=True)
class TargetReport:
    """One target of a run. `files` are paths inside the run's folder; `headline` the first thing to
    read.

    `leading` is the finding that the headline shows, as in `Verification`.
    `traced_at` holds the axis sizes at which the exporter saw the model, `plan` what the precision
    means for its modules, where that was worked out before the build.
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


@dataclasses.dataclass(frozen=True)
class RepairStep:
    """A remedy that a repair applied.

    Several remedies may be applied in one `round` (from 1). `code` and `message` are those of the
    finding that offered the `change`, in `target`; `outcome` says how the run with the round's
    changes ended.
    """

    round: int
    target: str
    code: str
    message: str
    change: dict[str, Json]
    outcome: str | None = None


@dataclasses.dataclass(frozen=True)
class RunRecord:
    """A run, whole. `key` digests everything that decides the outcome: stage keys, tolerances,
    targets.

    `repaired_from` is the id of the run that this one repairs with the remedies in `repair`.
    `provenance`: a `provenance.json` was written beside this record, so that its absence is a loss.
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

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Return all findings of stages, targets and verifications, in order, each once."""
        found = [finding for stage in self.stages for finding in stage.findings]
        for target in self.targets:
            found += target.findings
            for verification in target.verifications:
                found += verification.findings
        return tuple({str(finding): finding for finding in found}.values())
