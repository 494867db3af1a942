"""`summary.json`, beside a run's `result.json`: what lists of runs show and filter by.

A record has thousands of figures, a list of a thousand runs needs none of them. The summary names
the digest of the record that it was made from, so an edited record is never listed by its summary.
"""

import dataclasses
import hashlib
import json
from pathlib import Path

from convkit.codec import CodecError, decode
from convkit.record.model import RunRecord, TargetStatus

FILE_NAME = "summary.json"
_RESULT = "result.json"


@dataclasses.dataclass(frozen=True)
class StageTools:
    """The versions of the packages that one stage used; `target` is None for shared stages."""

    id: str
    target: str | None
    versions: dict[str, str]


@dataclasses.dataclass(frozen=True)
class RunSummary:
    """A run's outcome and tools. `result` is the SHA-256 of its `result.json`; `started` is in
    seconds since the epoch.
    """

    result: str
    id: str
    recipe: str
    started: float
    status: TargetStatus
    targets: dict[str, TargetStatus]
    stages: tuple[StageTools, ...]


def summarize(record: RunRecord, result: str) -> RunSummary:
    """Return the summary of a record whose file has this SHA-256."""
    return RunSummary(
        result=result,
        id=record.id,
        recipe=record.recipe,
        started=record.started,
        status=record.status,
        targets={target.name: target.status for target in record.targets},
        stages=tuple(StageTools(stage.id, stage.target, stage.versions) for stage in record.stages),
    )


def read_summary(folder: Path) -> RunSummary | None:
    """Return a run's summary; None if it has none, or none that belongs to its record."""
    try:
        content = json.loads((folder / FILE_NAME).read_bytes())
        summary = decode(RunSummary, content)
        result = hashlib.sha256((folder / _RESULT).read_bytes()).hexdigest()
    except (OSError, ValueError, CodecError, RecursionError):
        return None
    return summary if summary.result == result else None
