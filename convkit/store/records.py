"""What the store remembers of a finished stage, and of settled runs."""

import dataclasses

from convkit.codec import Json
from convkit.findings.model import Finding
from convkit.worker.protocol import StageKind


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """One file of an artifact."""

    sha256: str
    size: int


@dataclasses.dataclass(frozen=True)
class StageRecord:
    """What a finished stage left. `ingredients` is what its key was made of, `inputs` the artifacts
    it read.
    """

    key: str
    id: str
    kind: StageKind
    ingredients: dict[str, str]
    inputs: dict[str, str]
    artifact: str
    result: Json
    findings: tuple[Finding, ...]
    versions: dict[str, str]
    seconds: float
    peak_memory_bytes: int
    started: float


@dataclasses.dataclass(frozen=True)
class KeptRecord:
    """A stage's record and what its tool printed."""

    record: StageRecord
    log: str


@dataclasses.dataclass(frozen=True)
class LatestStage:
    """The last record's key of a recipe's stage."""

    key: str


@dataclasses.dataclass(frozen=True)
class SettledRun:
    """The run that settled a run key. `folder` is relative to the store's folder where it lies in
    the same home, so that a home can be moved.
    """

    run_key: str
    folder: str
