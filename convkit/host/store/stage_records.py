"""The store's records of finished stages and settled runs."""

import dataclasses

from convkit.protocol.findings.finding import Finding
from convkit.protocol.json_codec import Json
from convkit.protocol.messages import StageKind


@dataclasses.dataclass(frozen=True)
class FileEntry:
    """One file of an artifact."""

    sha256: str
    size: int


@dataclasses.dataclass(frozen=True)
class StageRecord:
    """The record of a finished stage. `ingredients` are the inputs to its key, `inputs` the
    artifacts it read.
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
    """A stage's record and its tool's output."""

    record: StageRecord
    log: str


@dataclasses.dataclass(frozen=True)
class LatestStage:
    """The key of the latest record of a recipe's stage."""

    key: str


@dataclasses.dataclass(frozen=True)
class SettledRun:
    """The run that settled a run key. `folder` is relative to the store if both are in the same
    home, so that the home can be moved. `code` is the digest of the code that judged it.
    """

    run_key: str
    folder: str
    code: str = ""
