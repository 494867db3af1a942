"""How a stage ended, and the work of a stage that must run."""

import dataclasses
import time
from collections.abc import Mapping

from convkit.host.plan.stages import Stage
from convkit.host.record.run_record import StageReport
from convkit.host.store.store import StageRecord
from convkit.protocol.errors import WorkerError
from convkit.protocol.jobs.job_table import JOBS
from convkit.protocol.json_codec import CodecError, decode
from convkit.protocol.messages import Answer, StageResult


@dataclasses.dataclass(frozen=True)
class Settled:
    """How a stage ended. `artifact` and `result` are set if it is a hit or done."""

    report: StageReport
    log: str = ""
    result: StageResult | None = None

    @property
    def usable(self) -> bool:
        """True if later stages can use it."""
        fatal = JOBS[self.report.kind].makes_model and any(
            finding.is_error for finding in self.report.findings
        )
        return self.report.status in ("hit", "done") and not fatal


@dataclasses.dataclass(frozen=True)
class StageWork:
    """A stage that must run, and why. `parts` are the inputs to its key, `known` is the store's
    record of it, if it runs again.
    """

    stage: Stage
    key: str
    reason: str
    parts: Mapping[str, str]
    inputs: Mapping[str, str]
    known: StageRecord | None

    def report(self) -> StageReport:
        """Return a report that the stage begins now; it is `broken` until it says otherwise."""
        return StageReport(
            self.stage.id,
            self.stage.kind,
            self.key,
            "broken",
            self.reason,
            self.stage.target,
            self.stage.version,
            started=time.time(),
        )


def result_of(stage: Stage, answer: Answer) -> StageResult:
    """Return a worker's result; raises WorkerError for one that this convkit does not know."""
    try:
        result: StageResult = decode(JOBS[stage.kind].result, answer.result)
    except CodecError as error:
        raise WorkerError(
            f"stage {stage.id} returned an answer that this convkit does not know: {error}"
        ) from error
    return result
