"""A search's record (docs/tune.md): what `convkit tune` tried, what each candidate is good for.

<home>/tune/<recipe>/<time>-<random>.json, .html   one per search
"""

import dataclasses
from pathlib import Path
from typing import Literal

from convkit.host.record.bench_record import Interval
from convkit.host.record.timestamped_records import write_stamped
from convkit.protocol.json_codec import Json

FORMAT = 1

# frontier: no other candidate is as good in every respect and better in one · dominated: another
# is · missed: verified, but a goal is missed or undecided · failed, broken, skipped: as in a run ·
# left-out: not tried, because it cannot run here or be verified.
CandidateStatus = Literal[
    "frontier", "dominated", "missed", "failed", "broken", "unproven", "skipped", "left-out"
]


@dataclasses.dataclass(frozen=True)
class Figures:
    """What was measured of a candidate. `latency` is its median over the original's in the same
    rounds, `p50` in seconds, both at the first size. `error` is the largest absolute difference
    from the original. `score` and `drop` are the task metric's. None: unknown.
    """

    latency: Interval | None = None
    p50: Interval | None = None
    size_bytes: int | None = None
    error: float | None = None
    score: float | None = None
    drop: float | None = None


@dataclasses.dataclass(frozen=True)
class Candidate:
    """A target that was considered. `target` is what a recipe would have.

    `threads` is its number of compute threads, if it differs from the search's. `why` explains the
    status; `own`: the recipe has this target already. `evidence` is
    simulated if its device did not run it; `run` is the id of the run that built it. `judged_by`
    says by which limits, if not by the recipe's, and why.
    """

    name: str
    target: dict[str, Json]
    status: CandidateStatus
    why: str = ""
    threads: int | None = None
    own: bool = False
    evidence: str = ""
    run: str = ""
    figures: Figures = Figures()
    judged_by: str = ""


@dataclasses.dataclass(frozen=True)
class TuneRecord:
    """One search. `size` is the size of inputs whose latencies are shown, `original` the original's
    figures, `metric` the task metric if the recipe has one. `chosen` is None if nothing meets
    tolerance and goals. `noise` and `waiting` are those of the least steady benchmark, as a
    benchmark has them; None in older records.
    """

    format: int
    recipe: str
    started: float
    ended: float
    host: dict[str, Json]
    threads: int
    size: str
    prefer: str
    original: Figures
    candidates: tuple[Candidate, ...]
    chosen: str | None = None
    metric: str | None = None
    noise: float | None = None
    waiting: float | None = None

    @property
    def choice(self) -> Candidate | None:
        """The chosen candidate."""
        return next((each for each in self.candidates if each.name == self.chosen), None)

    def with_status(self, *statuses: CandidateStatus) -> tuple[Candidate, ...]:
        """Return the candidates with one of these statuses, the fastest first."""
        found = [each for each in self.candidates if each.status in statuses]
        return tuple(sorted(found, key=_latency))


def _latency(candidate: Candidate) -> float:
    found = candidate.figures.latency
    return found.value if found is not None else float("inf")


def tune_folder(home: Path, recipe: str) -> Path:
    """Return the folder of a recipe's searches."""
    return home / "tune" / recipe


def write_tune(home: Path, record: TuneRecord) -> Path:
    """Store a search's record; return its file. Raises StoreError."""
    return write_stamped(tune_folder(home, record.recipe), record)
